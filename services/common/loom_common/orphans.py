"""What a provider still bills for calls whose callers are gone.

A caller that leaves, or whose deadline passes, receives no answer and so no usage; the provider works on and charges.
Such a call is therefore not cut: it is waited for here, and what it spent becomes a row of the ledger of its own, under
the request's identifier. A stream is cut, since its provider stops where nobody reads; what it spent until then becomes
such a row.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Final, Self, TypeVar

import structlog

from loom.insights.v1 import ledger_pb2
from loom_common import call
from loom_common.attribution import Attribution
from loom_common.auth.claims import NO_NAMESPACE
from loom_common.call import Call
from loom_common.clock import Clock, SystemClock
from loom_common.errors import LoomError, Reason
from loom_common.ledger import LedgerEntry, LedgerSink, ledger_entry
from loom_common.ops import OpSpec, all_ops
from loom_common.providers import ProviderError
from loom_common.usage import Usage

T = TypeVar("T")

# Source: chosen. A stop does not wait for a model's whole time; what is not known by then is lost and said so.
_CLOSE_WAIT_S: Final = 2.0
# Source: chosen. Each holds a connection until the provider's own time is over, and a hung one must leave most of the
# thousand to those who still wait.
_MOST_RUNNING: Final = 256

_log = structlog.get_logger(__name__)


class Orphans:
    """Runs calls to a provider to their end, and records those that their callers left.

    An async context manager: when it is left, what still runs gets two seconds to end.

    Args:
        ledger: Takes the rows.
        recorder: Service that records them.
        op: Operation of a call that runs outside of any, such as a worker's.
        clock: Clock of the rows.
        most: Calls that are waited for at once; one that is left beyond that is cut, and its usage lost.
    """

    def __init__(
        self, ledger: LedgerSink, *, recorder: str, op: str, clock: Clock | None = None, most: int = _MOST_RUNNING
    ) -> None:
        self._ledger = ledger
        self._recorder = recorder
        self._op = op
        self._clock = clock or SystemClock()
        self._most = most
        self._running: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._running:
            return
        _, late = await asyncio.wait(self._running, timeout=_CLOSE_WAIT_S)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
            _log.warning("orphan_usage_lost", count=len(late), reason="closed")

    async def run(self, work: Coroutine[object, object, T], spent: Callable[[T], Usage]) -> T:
        """Returns what `work` returns; where the caller leaves before, `work` goes on and its usage is recorded.

        Args:
            work: Bounds its own time: it runs to its end. It adds nothing to the usage of the running call.
            spent: What it spent, by what it returned. For a caller that stayed, the caller itself adds that.
        """
        own = replace(call.current(), usage=Usage())
        started_at, started_s = self._clock.now(), time.monotonic()
        with call.bind(own):
            task = asyncio.create_task(work, name="provider call")
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
            if not task.done() and len(self._running) >= self._most:
                task.cancel()
                _log.warning("orphan_usage_lost", count=1, reason="too_many", request_id=own.request_id)
                raise
            outcome = _outcome(own)
            # Nobody waits any longer, so that no further attempt begins.
            own.deadline = time.monotonic()
            finishing = self._finish(task, spent, own, outcome, started_at, started_s)
            adopted = asyncio.create_task(finishing, name="orphan usage")
            self._running.add(adopted)
            adopted.add_done_callback(self._running.discard)
            raise

    async def _finish(
        self,
        task: asyncio.Task[T],
        spent: Callable[[T], Usage],
        running: Call,
        outcome: str,
        started_at: datetime,
        started_s: float,
    ) -> None:
        try:
            usage = spent(await task)
        except ProviderError as error:
            # What a failed call cost, no provider tells.
            _log.info("orphan_failed", provider=error.provider, kind=error.kind.value, request_id=running.request_id)
            return
        except LoomError as error:
            _log.info("orphan_refused", reason=error.reason.value, request_id=running.request_id)
            return
        except Exception:  # noqa: BLE001 - logged whole below
            # The top of the task: nobody else would ever hear of it.
            _log.exception("orphan_broken", request_id=running.request_id)
            return
        self._record(running, usage, outcome, started_at, started_s)

    def left(self, usage: Usage, started_at: datetime, started_s: float) -> None:
        """Records what the running call spent that its caller left: no trailer will carry it.

        Args:
            usage: What it spent.
            started_at: When it began.
            started_s: When it began, on the clock of `time.monotonic`. Units: seconds.
        """
        own = replace(call.current(), usage=Usage())
        self._record(own, usage, _outcome(own), started_at, started_s)

    def _record(self, running: Call, usage: Usage, outcome: str, started_at: datetime, started_s: float) -> None:
        running.usage.merge(usage)
        _log.info("orphan_recorded", outcome=outcome, request_id=running.request_id)
        ops = all_ops()
        entry = orphan_entry(
            ops.get(running.op, ops[self._op]),
            running,
            recorder=self._recorder,
            started_at=started_at,
            latency_ms=(time.monotonic() - started_s) * 1000,
            outcome=outcome,
        )
        self._ledger.record(entry)


def orphan_entry(
    op: OpSpec, running: Call, *, recorder: str, started_at: datetime, latency_ms: float, outcome: str
) -> LedgerEntry:
    """Returns the row of what a call spent and could tell nobody, named after whom it was for; see `ledger_entry`."""
    entry = ledger_entry(
        op,
        running,
        None,
        None,
        recorder=recorder,
        started_at=started_at,
        latency_ms=latency_ms,
        outcome=outcome,
        refused=False,
    )
    _attribute(entry.row, running.attribution)
    return entry


def _outcome(running: Call) -> str:
    late = running.time_left_s() == 0
    return (Reason.DEADLINE_EXCEEDED if late else Reason.CANCELLED).value


def _attribute(row: ledger_pb2.LedgerRow, attribution: Attribution | None) -> None:
    """Names whom the call was for, where no token of theirs came with it."""
    if attribution is None:
        return
    row.subject = row.subject or attribution.subject
    row.user_id = row.user_id or attribution.user_id
    row.run_id = row.run_id or attribution.run_id
    if attribution.org:
        row.org, row.namespace = attribution.org[:128], (attribution.namespace or NO_NAMESPACE)[:128]
