"""Removes what was deleted or has expired long ago from the store's files, with everything that was made of it."""

import asyncio
import logging
from datetime import datetime, timedelta
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import tagged
from loom_common.clock import Clock
from loom_common.erasure import ErasureSteps, Subject
from loom_common.errors import LoomError
from loom_common.leases import Lease, LeaseLost, Leases
from loom_memory.store.removals import RemovalRepository, named

logger = logging.getLogger(__name__)

NAME: Final = "purge"
LEASE: Final = "memory.purge"

_LEASE_S: Final = 600.0
# Memories whose rows one rewrite removes. A rewrite costs as much for a thousand as for one.
_BATCH: Final = 1_000
# Their own rows go with the versions that say when their time was over.
_OWN: Final = frozenset({"memory", "memory_versions", "memory_embeddings", "idempotency_keys"})


class Purge:
    """One pass over all namespaces, in whichever process holds the lease.

    What is derived of a memory and names no version of it goes by its time: rows from before the deletion's own age.
    A key that was written again is not touched: its current row is neither deleted nor expired.
    """

    def __init__(
        self,
        removals: RemovalRepository,
        steps: ErasureSteps,
        leases: Leases,
        clock: Clock,
        *,
        after_days: float,
        interval_s: float,
        batch_size: int = _BATCH,
    ) -> None:
        self._removals = removals
        self._steps = steps
        self._leases = leases
        self._clock = clock
        self._after = timedelta(days=after_days)
        self._interval_s = interval_s
        self._batch_size = batch_size

    async def run(self) -> None:
        """Purges until it is cancelled."""
        while True:
            with tagged(LEASE):
                try:
                    await self._take_turn()
                except (LoomError, LeaseLost):
                    logger.warning("purge_interrupted", exc_info=True)
            await asyncio.sleep(self._interval_s)

    async def _take_turn(self) -> None:
        async with self._leases.taken(LEASE, _LEASE_S) as lease:
            if lease is None:
                return
            purged = await self.purge(lease)
        logger.info("purged", extra={"memories": purged})

    async def purge(self, lease: Lease) -> int:
        """Removes all there is and returns how many memories that were; a namespace that fails is left for later.

        Raises:
            LeaseLost: Another process purges now.
            LoomError: The namespaces cannot be read.
        """
        before = self._clock.now() - self._after
        purged = 0
        for scope in await self._removals.scopes_with_over(before):
            try:
                purged += await self._purge_namespace(lease, scope, before)
            except LoomError:
                logger.warning("namespace_not_purged", exc_info=True, extra={"namespace": scope.namespace})
        return purged

    async def _purge_namespace(self, lease: Lease, scope: Scope, before: datetime) -> int:
        purged = 0
        while over := await self._removals.over(scope, before, self._batch_size):
            await lease.renew()
            subject = Subject(scope.org, scope.namespace, "", named(scope, over), before)
            for held in self._steps.tables:
                if held.table not in _OWN:
                    await self._steps.erase(subject, held.table)
            await self._removals.purge(scope, over)
            purged += len(over)
        return purged
