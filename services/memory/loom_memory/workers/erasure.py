"""Carries erasures out, in whichever process holds the lease, and goes on with those that another left."""

import asyncio
import logging
from typing import Final

from loom_common.clickhouse import tagged
from loom_common.errors import LoomError
from loom_common.leases import LeaseLost, Leases
from loom_memory.app.erasure.saga import ErasureSaga, told
from loom_memory.store.erasures import FINISHED, ErasureRepository

logger = logging.getLogger(__name__)

NAME: Final = "erasure"
LEASE: Final = "memory.erasure"

_LEASE_S: Final = 60.0
# Whoever begins one in this process wakes the worker; this is for what another process began or left.
_IDLE_S: Final = 30.0
# How long a receipt waits for files to go, or for a service that does not answer.
_WAITING_S: Final = 2.0
_BATCH: Final = 100


class ErasureWorker:
    """Takes every erasure that runs as far as it comes, again and again until none is left."""

    def __init__(self, erasures: ErasureRepository, saga: ErasureSaga, leases: Leases) -> None:
        self._erasures = erasures
        self._saga = saga
        self._leases = leases
        self._begun = asyncio.Event()

    def begun(self) -> None:
        """Wakes the worker for an erasure that was begun."""
        self._begun.set()

    async def run(self) -> None:
        """Works until it is cancelled."""
        while True:
            self._begun.clear()
            waits = False
            with tagged(LEASE):
                try:
                    waits = await self._take_turn()
                except (LoomError, LeaseLost):
                    logger.warning("erasure_interrupted", exc_info=True)
            try:
                async with asyncio.timeout(_WAITING_S if waits else _IDLE_S):
                    await self._begun.wait()
            except TimeoutError:
                continue

    async def _take_turn(self) -> bool:
        """Returns whether erasures are left that wait for something."""
        running = await self._erasures.running(1)
        if not running:
            return False
        async with self._leases.taken(LEASE, _LEASE_S, renewed=True) as lease:
            return False if lease is None else await self.work()

    async def work(self) -> bool:
        """Takes each erasure as far as it comes, and returns whether some are not finished."""
        waits = False
        for receipt in await self._erasures.running(_BATCH):
            try:
                after = await self._saga.advance(receipt)
            except LoomError as error:
                logger.warning("erasure_waits", exc_info=True, extra={"erasure_id": receipt.erasure_id})
                # How far it came was stored at each step; only what it waits for is new.
                held = await self._erasures.get(receipt.org, receipt.erasure_id)
                if held is not None:
                    await self._erasures.wait_for(held, told(error))
                waits = True
                continue
            waits = waits or after.state != FINISHED
            if after.state == FINISHED:
                logger.info("erased", extra={"erasure_id": after.erasure_id, "tables": len(after.remaining)})
        return waits
