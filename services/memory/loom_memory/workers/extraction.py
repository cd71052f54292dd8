"""Extracts in the background what was deferred, and goes on with what was interrupted."""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from loom_common.clock import Clock
from loom_common.errors import (
    BackendUnavailable,
    BudgetExhausted,
    DeadlineExceeded,
    InternalError,
    LoomError,
    ModelCallsOff,
    Overloaded,
    ProviderFailed,
)
from loom_common.features import Feature
from loom_common.leases import Lease, LeaseLost
from loom_common.model_calls.gate import ModelCallGate
from loom_common.model_calls.held import HOLDS
from loom_memory.app.extract.working import ExtractionWork
from loom_memory.app.passes import Passes, WorkerPass
from loom_memory.domain.extractions import MESSAGES, Extraction, Reason, State
from loom_memory.store.extractions import Busy, ExtractionRepository

logger = logging.getLogger(__name__)

_LOOK_S: Final = 5.0
_LEASE_MARGIN_S: Final = 30.0
# Source: chosen. Where the switch is known here, the organisation is left out of what is selected and never gets here.
_OFF_S: Final = 300.0
_LEAST_HOLD_S: Final = 10.0
_LONGEST_HOLD_S: Final = 300.0
# A day's spend is read anew after this.
_SPENT_S: Final = 900.0
_KEPT: Final = timedelta(days=30)
_TIDY_EVERY_S: Final = 3600.0
_TIDY_ROWS: Final = 1_000
# Failures of these kinds one after the other say that nothing can be done now, and not that the work is bad.
_OUTAGES: Final = (ProviderFailed, BackendUnavailable, Overloaded, DeadlineExceeded)


class ExtractionWorker:
    """Works on several extractions at once, at most half of them for one who asked, so that none takes every place.

    An attempt counts from its lease on, so that work that kills its process is given up in the end.
    """

    feature = Feature.EXTRACTION_WORKER
    setting = ""

    def __init__(
        self,
        extractions: ExtractionRepository,
        work: ExtractionWork,
        passes: Passes,
        model_calls: ModelCallGate,
        clock: Clock,
        *,
        slots: int,
        deadline_s: float,
        max_attempts: int,
        interval_s: float = _LOOK_S,
    ) -> None:
        self.interval_s = interval_s
        self._extractions = extractions
        self._work = work
        self._passes = passes
        self._model_calls = model_calls
        self._clock = clock
        self._slots = slots
        self._deadline_s = deadline_s
        self._max_attempts = max_attempts
        self._tidied = float("-inf")

    async def has_work(self) -> bool:
        """See `Worker.has_work`."""
        if self._clock.monotonic_s() - self._tidied >= _TIDY_EVERY_S:
            return True
        off = self._model_calls.off()
        return bool(await self._extractions.due(self._clock.now(), off=off, busy=(), most_each=1, limit=1))

    async def run_pass(self, lease: Lease) -> Mapping[str, int]:
        """See `Worker.run_pass`: works until nothing is due."""
        async with self._passes.passing() as passing:
            drain = _Drain(self, lease, passing)
            try:
                await drain.run()
            finally:
                await drain.close()
        await self._tidy(lease)
        return dict(drain.counts)

    async def _tidy(self, lease: Lease) -> None:
        """Removes the texts of what has ended from superseded rows, and rows that nobody asks for any more."""
        if self._clock.monotonic_s() - self._tidied < _TIDY_EVERY_S:
            return
        await lease.check()
        await self._extractions.scrub()
        if ended := await self._extractions.ended(self._clock.now() - _KEPT, _TIDY_ROWS):
            await self._extractions.remove(ended)
        self._tidied = self._clock.monotonic_s()

    async def next_row(self, lease: Lease, busy: list[Busy]) -> Extraction | None:
        """Returns one more row to work on, under its lease, or None where nothing is due."""
        now = self._clock.now()
        most_each = max(1, self._slots // 2)
        for scope, extraction_id in await self._extractions.due(
            now, off=self._model_calls.off(), busy=busy, most_each=most_each, limit=1
        ):
            row = await self._extractions.get(scope, extraction_id)
            if row is None or row.state not in (State.PENDING, State.RUNNING) or row.is_worked_on(now):
                continue
            await lease.check()
            if row.attempts >= self._max_attempts:
                # It was under way each time and never came back: it took its process with it.
                lost = InternalError("Every attempt was interrupted before its end.")
                await self._fail(row, lost)
                continue
            return await self._work.put(row.leased(now, self._deadline_s + _LEASE_MARGIN_S))
        return None

    async def attempt(self, row: Extraction, lease: Lease, passing: WorkerPass) -> LoomError | None:
        """Works on a row and notes how that ended; returns the error that it ended with.

        Raises:
            LeaseLost: Another process has the queue now; nothing is noted.
        """
        try:
            with passing.acting(row.scope, row.enqueued_by, row.user_id):
                async with asyncio.timeout(self._deadline_s):
                    worked = await self._work.work(row, lease.check)
        except TimeoutError:
            error: LoomError = DeadlineExceeded(f"It did not end within {self._deadline_s:g} s.")
        except LoomError as raised:
            error = raised
        except LeaseLost:
            raise
        except Exception:  # whatever one conversation breaks, the others are worked on
            logger.exception("extraction_broken", extra={"extraction": row.id, "org": row.scope.org})
            error = InternalError("A fault of Loom's; see its log.")
        else:
            await lease.check()
            await self._end(row, worked.row, is_whole=worked.is_whole)
            return None
        await lease.check()
        if isinstance(error, (*HOLDS, BudgetExhausted)):
            await self._hold(row, error)
        else:
            await self._fail(row, error)
        return error

    async def _end(self, row: Extraction, worked: Extraction, *, is_whole: bool) -> None:
        if is_whole:
            await self._work.note(row, lambda _: worked)
            return
        reason, told, now = Reason.UNREADABLE.value, MESSAGES[Reason.UNREADABLE], self._clock.now()
        await self._work.note(
            row, lambda current: current.failed(reason, told, now, retry_after_s=None, most=self._max_attempts)
        )

    async def _fail(self, row: Extraction, error: LoomError) -> None:
        reason, now = error.reason.value, self._clock.now()
        failed = await self._work.note(
            row,
            lambda current: current.failed(
                reason, error.message, now, retry_after_s=error.retry_after_s, most=self._max_attempts
            ),
        )
        if failed is not None and failed.state is State.DEAD:
            logger.error("extraction_given_up", extra={"extraction": row.id, "org": row.scope.org, "reason": reason})

    async def _hold(self, row: Extraction, error: LoomError) -> None:
        """Leaves the work, and what else its writer has, until the hold is over; no attempt is spent."""
        reason, rest_s, now = error.reason.value, self._rest_s(error), self._clock.now()
        logger.warning("extraction_held", extra={"org": row.scope.org, "reason": reason, "rest_s": rest_s})
        await self._work.note(row, lambda current: current.on_hold(reason, error.message, now, rest_s))

    def _rest_s(self, error: LoomError) -> float:
        if isinstance(error, ModelCallsOff):
            return _OFF_S
        if isinstance(error, BudgetExhausted):
            return min(error.retry_after_s or _SPENT_S, _SPENT_S)
        asked_s = error.retry_after_s or self._model_calls.policy.cooldown_s
        return min(max(asked_s, _LEAST_HOLD_S), max(_LONGEST_HOLD_S, self._model_calls.policy.cooldown_s))

    @property
    def slots(self) -> int:
        """Extractions that are worked on at once."""
        return self._slots


class _Drain:
    """One pass over the queue."""

    def __init__(self, worker: ExtractionWorker, lease: Lease, passing: WorkerPass) -> None:
        self._worker = worker
        self._lease = lease
        self._passing = passing
        self._busy: dict[asyncio.Task[LoomError | None], Busy] = {}
        self._outages = 0
        self.counts: Counter[str] = Counter()

    async def run(self) -> None:
        """Works until nothing is due, or until everything fails because something is away."""
        while True:
            while len(self._busy) < self._worker.slots and self._outages < self._worker.slots:
                row = await self._worker.next_row(self._lease, list(self._busy.values()))
                if row is None:
                    break
                task = asyncio.create_task(self._worker.attempt(row, self._lease, self._passing))
                self._busy[task] = Busy(row.scope, row.id, row.enqueued_by)
            if not self._busy:
                if self._outages >= self._worker.slots:
                    raise BackendUnavailable("Extractions fail one after the other; the queue rests for a while.")
                return
            # While some hang, others that become due begin.
            done, _ = await asyncio.wait(self._busy, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                del self._busy[task]
                self._count(task.result())

    async def close(self) -> None:
        """Ends what is under way; its rows are taken up again when their leases are over."""
        for task in self._busy:
            task.cancel()
        if self._busy:
            await asyncio.wait(self._busy)

    def _count(self, error: LoomError | None) -> None:
        if error is None:
            self._outages = 0
            self.counts["done"] += 1
        elif isinstance(error, (*HOLDS, BudgetExhausted)):
            self.counts["held"] += 1
        else:
            self._outages = self._outages + 1 if isinstance(error, _OUTAGES) else 0
            self.counts["failed"] += 1
