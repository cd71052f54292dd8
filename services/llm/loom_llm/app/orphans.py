"""What a provider still bills for calls whose callers are gone.

A caller that leaves, or whose deadline passes, receives no answer and so no usage; the provider works on and charges.
Such a call is therefore not cut: it is waited for here, and what it spent becomes a row of the ledger of its own, under
the request's identifier.
"""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Final, Self

import structlog

from loom.insights.v1 import ledger_pb2
from loom_common import call, telemetry
from loom_common.attribution import Attribution
from loom_common.auth.claims import NO_NAMESPACE
from loom_common.call import Call
from loom_common.clock import Clock, SystemClock
from loom_common.errors import Reason
from loom_common.ledger import LedgerSink, ledger_entry
from loom_common.ops import all_ops
from loom_common.usage import Usage
from loom_llm.domain.client import LLMResult
from loom_llm.domain.failures import ProviderError

OP: Final = "llm.complete"
RECORDER: Final = "llm"

# Source: chosen. A stop does not wait for a model's whole time; what is not known by then is lost and said so.
_CLOSE_WAIT_S: Final = 2.0

_log = structlog.get_logger(__name__)


class Orphans:
    """Runs calls to a provider to their end, and records those that their callers left.

    An async context manager: when it is left, what still runs gets two seconds to end.

    Args:
        ledger: Takes the rows.
        clock: Clock of the rows.
    """

    def __init__(self, ledger: LedgerSink, clock: Clock | None = None) -> None:
        self._ledger = ledger
        self._clock = clock or SystemClock()
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

    async def run(self, work: Coroutine[object, object, LLMResult]) -> LLMResult:
        """Returns what `work` returns; where the caller leaves before, `work` goes on and its usage is recorded.

        `work` bounds its own time: it runs to its end.
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
            late = own.time_left_s() == 0
            # Nobody waits any longer, so that no further attempt begins.
            own.deadline = time.monotonic()
            outcome = (Reason.DEADLINE_EXCEEDED if late else Reason.CANCELLED).value
            finishing = self._finish(task, own, outcome, started_at, started_s)
            adopted = asyncio.create_task(finishing, name="orphan usage")
            self._running.add(adopted)
            adopted.add_done_callback(self._running.discard)
            raise

    async def _finish(
        self, task: asyncio.Task[LLMResult], running: Call, outcome: str, started_at: datetime, started_s: float
    ) -> None:
        try:
            result = await task
        except ProviderError as error:
            # What a failed call cost, no provider tells.
            _log.info("orphan_failed", provider=error.provider, kind=error.kind.value, request_id=running.request_id)
            return
        except Exception:  # noqa: BLE001 - logged whole below
            # The top of the task: nobody else would ever hear of it.
            _log.exception("orphan_broken", request_id=running.request_id)
            return
        running.usage.merge(usage_of(result))
        telemetry.add("loom.llm.calls", model=result.model, outcome="orphaned")
        _log.info("orphan_recorded", outcome=outcome, request_id=running.request_id)
        entry = ledger_entry(
            all_ops()[OP],
            running,
            None,
            None,
            recorder=RECORDER,
            started_at=started_at,
            latency_ms=(time.monotonic() - started_s) * 1000,
            outcome=outcome,
            refused=False,
        )
        _attribute(entry.row, running.attribution)
        self._ledger.record(entry)


def usage_of(result: LLMResult) -> Usage:
    """Returns what one answer of a provider spent."""
    if result.from_cache:
        return Usage()
    return Usage(
        input_tokens=result.input_tokens,
        output_tokens=result.output_tokens,
        cached_tokens=result.cached_input_tokens,
        llm_calls=1,
        model=result.model,
        model_tokens=result.input_tokens + result.output_tokens,
    )


def _attribute(row: ledger_pb2.LedgerRow, attribution: Attribution | None) -> None:
    """Names whom the call was for, where no token of theirs came with it."""
    if attribution is None:
        return
    row.subject = row.subject or attribution.subject
    row.user_id = row.user_id or attribution.user_id
    row.run_id = row.run_id or attribution.run_id
    if attribution.org:
        row.org, row.namespace = attribution.org[:128], (attribution.namespace or NO_NAMESPACE)[:128]
