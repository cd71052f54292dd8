"""Runs a worker's passes in whichever process holds its lease, and notes what the last one did."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, Protocol

from loom_common.clickhouse import tagged
from loom_common.clock import Clock, MonotonicVersions
from loom_common.errors import LoomError, Reason
from loom_common.features import Feature
from loom_common.leases import Lease, LeaseLost, Leases
from loom_memory.store.worker_passes import LastPass, WorkerPassRepository

logger = logging.getLogger(__name__)

LEASE_S: Final = 60.0
# While the store or a service does not answer, looks begin at twice this, for a start finds some of them not there yet,
# and grow as far apart as the second.
_FIRST_LOOK_S: Final = 5.0
_LONGEST_LOOK_S: Final = 300.0
_LOST: Final = "LEASE_LOST"


class Worker(Protocol):
    """One kind of background work.

    Attributes:
        feature: Its name.
        interval_s: Time between two of its passes.
        setting: Setting that switches it; empty where it is always on.
    """

    feature: Feature
    interval_s: float
    setting: str

    async def has_work(self) -> bool:
        """Says whether a pass would find something; costs little, and is asked without the lease."""
        ...

    async def run_pass(self, lease: Lease) -> Mapping[str, int]:
        """Does one pass and returns what it did, in numbers. It checks the lease before it writes.

        Raises:
            LeaseLost: Another process has the work now.
            LoomError: The store or a service did not answer; the next pass goes on.
        """
        ...


def lease_name(feature: Feature) -> str:
    """Returns the lease of a worker's leader."""
    return f"worker.{feature.value}"


class Leading:
    """Runs one worker until it is cancelled; `nudge` has it look at once."""

    def __init__(self, worker: Worker, leases: Leases, passes: WorkerPassRepository, clock: Clock) -> None:
        self._worker = worker
        self._leases = leases
        self._passes = passes
        self._clock = clock
        self._versions = MonotonicVersions(clock)
        self._nudged = asyncio.Event()

    @property
    def worker(self) -> Worker:
        """The worker."""
        return self._worker

    def nudge(self) -> None:
        """Has the worker look for work now and not at its next time."""
        self._nudged.set()

    async def run(self) -> None:
        """Works until it is cancelled."""
        failed_s = 0.0
        while True:
            with tagged(self._worker.feature.value):
                try:
                    await self.turn()
                except (LoomError, LeaseLost) as error:
                    extra = {"worker": self._worker.feature.value, "reason": str(error)}
                    logger.warning("worker_interrupted", extra=extra)
                    failed_s = min(2 * (failed_s or min(self._worker.interval_s, _FIRST_LOOK_S)), _LONGEST_LOOK_S)
                    # Nobody's nudge ends this: what comes in meanwhile would meet the same.
                    await asyncio.sleep(failed_s)
                    continue
            failed_s = 0.0
            with suppress(TimeoutError):
                async with asyncio.timeout(self._worker.interval_s):
                    await self._nudged.wait()
            self._nudged.clear()

    async def turn(self) -> Mapping[str, int] | None:
        """Does one pass where there is work and no other process has it; None where none was done.

        Raises:
            LeaseLost: Another process took the work over.
            LoomError: The store or a service did not answer.
        """
        if not await self._worker.has_work():
            return None
        async with self._leases.taken(lease_name(self._worker.feature), LEASE_S, renewed=True) as lease:
            return None if lease is None else await self._noted(lease)

    async def _noted(self, lease: Lease) -> Mapping[str, int]:
        last = LastPass(self._worker.feature.value, lease.holder, self._clock.now())
        await self._passes.put(last, self._versions.next())
        counts: Mapping[str, int] = {}
        outcome = "ok"
        try:
            counts = await self._worker.run_pass(lease)
        except LoomError as error:
            outcome = error.reason.value
            raise
        except LeaseLost:
            outcome = _LOST
            raise
        except asyncio.CancelledError:
            outcome = Reason.CANCELLED.value
            raise
        finally:
            ended = LastPass(last.worker, last.holder, last.started_at, self._clock.now(), outcome, counts)
            # A stop does not wait for the store; the next pass writes over what is left open here.
            if outcome not in (Reason.CANCELLED.value, _LOST):
                await self._passes.put(ended, self._versions.next())
        return counts
