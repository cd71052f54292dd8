"""The ledger's row of a call, and its way to insights: in the background, at most once, counted where it is lost."""

import asyncio
import hashlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, Protocol, Self

import grpc.aio
import structlog
from google.protobuf.message import Message

from loom.insights.v1 import ledger_pb2, ledger_pb2_grpc
from loom_common import telemetry
from loom_common.auth.claims import NO_NAMESPACE
from loom_common.auth.directory import Directory
from loom_common.call import Call
from loom_common.clock import Clock
from loom_common.errors import LoomError
from loom_common.ops import OpSpec
from loom_common.rates import DEFAULT_CLASS, RateLimiter

# Source: chosen. Rows of about ten seconds at full speed; half a megabyte of messages each batch.
_MAX_BUFFERED: Final = 10_000
_BATCH_ROWS: Final = 500
# Each batch is an insert of its own, which takes from the calls what a small write takes.
_FLUSH_S: Final = 1.0
_SEND_TIMEOUT_S: Final = 10.0
_CLOSE_TIMEOUT_S: Final = 2.0
_FIRST_WAIT_S: Final = 0.1
_LONGEST_WAIT_S: Final = 5.0

# Rows of callers that nobody knows. Source: chosen; enough to see an attack, and a gigabyte of disk takes it a year.
_STRANGERS_PER_S: Final = 5.0
_STRANGERS: Final = "strangers"

_LOG_EVERY: Final = 1_000
_MAX_ARG: Final = 512
_MAX_COUNT: Final = 2**31 - 1
_SQL_DIGEST: Final = "sql_digest"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One row, and digests of texts that it gets where its namespace is not restricted."""

    row: ledger_pb2.LedgerRow
    text_digests: Mapping[str, str] = field(default_factory=dict)


class LedgerSink(Protocol):
    """Takes rows of the ledger."""

    def record(self, entry: LedgerEntry) -> None:
        """Takes one row. Neither waits nor fails."""
        ...


class FakeLedgerSink:
    """Keeps rows in a list."""

    def __init__(self) -> None:
        self.entries: list[LedgerEntry] = []

    def record(self, entry: LedgerEntry) -> None:
        """See `LedgerSink.record`."""
        self.entries.append(entry)


def ledger_entry(
    op: OpSpec,
    call: Call,
    request: Message | None,
    response: Message | None,
    *,
    recorder: str,
    started_at: datetime,
    latency_ms: float,
    outcome: str,
    refused: bool,
) -> LedgerEntry:
    """Returns the row of one call.

    Args:
        op: Operation that was called.
        call: Who called it, in which scope, by which transport, and what was spent.
        request: Request, or None where none was read.
        response: Answer, or None where there was none.
        recorder: Service that records it.
        started_at: When the call began.
        latency_ms: Units: milliseconds.
        outcome: `ok`, or the reason of the error.
        refused: Whether it was refused before its work began.
    """
    row = _row(call, op.name, recorder, started_at, latency_ms, outcome)
    row.user_id = _user_id(request)[:256]
    row.refused = refused
    if response is not None:
        hits, found = op.count_hits(response), op.was_found(response)
        if hits is not None:
            row.out_hits = hits
        if found is not None:
            row.found = found
    row.args.update(_identifiers(op, request, response))
    row.out_sql_digest = row.args.pop(_SQL_DIGEST, "")[:128]
    return LedgerEntry(row, _text_digests(op, request))


def pass_entry(call: Call, *, recorder: str, started_at: datetime, latency_ms: float, outcome: str) -> LedgerEntry:
    """Returns the row of what one pass of a worker did for one organisation.

    Args:
        call: The worker as `op`, the organisation in `scope`, and what was spent.
        recorder: Service that records it.
        started_at: When the pass began.
        latency_ms: Units: milliseconds.
        outcome: `ok`, or the reason of the error that ended it.
    """
    return LedgerEntry(_row(call, call.op, recorder, started_at, latency_ms, outcome))


def _row(
    call: Call, op: str, recorder: str, started_at: datetime, latency_ms: float, outcome: str
) -> ledger_pb2.LedgerRow:
    """Returns a row of what is known without the contract: who, where, when, and what was spent."""
    usage, claims = call.usage, call.claims
    scope_org = call.scope.org if call.scope else (claims.org if claims else NO_NAMESPACE)
    return ledger_pb2.LedgerRow(
        request_id=call.request_id[:128],
        recorder=recorder[:64],
        occurred_at=started_at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        org=scope_org[:128],
        namespace=(call.scope.namespace if call.scope else NO_NAMESPACE)[:128],
        op=op[:128],
        transport=call.transport[:32],
        subject=(claims.sub if claims else "")[:256],
        consumer=(claims.consumer if claims else "")[:128],
        run_id=(call.run_id or "")[:256],
        status=outcome[:64],
        latency_ms=latency_ms,
        embedding_tokens=min(usage.embedding_tokens, _MAX_COUNT),
        input_tokens=min(usage.input_tokens, _MAX_COUNT),
        output_tokens=min(usage.output_tokens, _MAX_COUNT),
        cached_tokens=min(usage.cached_tokens, _MAX_COUNT),
        llm_call_count=min(usage.llm_calls, _MAX_COUNT),
        upstream_cost_usd=usage.upstream_cost_usd,
        out_llm_cache_saved_usd=usage.llm_cache_saved_usd,
        model=usage.model[:128],
    )


def _user_id(request: Message | None) -> str:
    value = getattr(request, "user_id", "") if request is not None else ""
    return value if isinstance(value, str) else ""


def _identifiers(op: OpSpec, request: Message | None, response: Message | None) -> dict[str, str]:
    found = {}
    for key in op.ledger_id_keys:
        for message in (request, response):
            value = getattr(message, key, None)
            if isinstance(value, str | int | float) and value:
                found[key] = str(value)[:_MAX_ARG]
                break
    return found


def _text_digests(op: OpSpec, request: Message | None) -> dict[str, str]:
    if request is None:
        return {}
    fields = request.DESCRIPTOR.fields_by_name
    digests = {key: _digest(request, key) for key in op.ledger_text_keys if key in fields}
    return {key: digest for key, digest in digests.items() if digest}


def _digest(request: Message, name: str) -> str:
    value = getattr(request, name)
    if not value:
        return ""
    if isinstance(value, str):
        data = value.encode()
    else:
        # A list of messages or a message: the field alone, as it stands on the wire.
        only = type(request)()
        only.CopyFrom(request)
        for other in request.DESCRIPTOR.fields_by_name:
            if other != name:
                only.ClearField(other)
        data = only.SerializeToString(deterministic=True)
    return hashlib.sha256(data).hexdigest()


class GrpcLedgerSink:
    """Sends rows to insights in batches.

    An async context manager: rows are sent while it is entered, and what is left is sent when it is left. A row is sent
    once: a batch whose sending failed may have been stored, so it is counted as lost and not sent again.

    Callers that nobody knows cannot fill the disk: of their calls a few per second are recorded, the others counted.
    """

    def __init__(self, channel: grpc.aio.Channel, directory: Directory, clock: Clock | None = None) -> None:
        self._channel = channel
        self._stub = ledger_pb2_grpc.LedgerServiceStub(channel)
        self._directory = directory
        self._buffer: deque[LedgerEntry] = deque()
        self._arrived = asyncio.Event()
        self._sending = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._strangers = RateLimiter({DEFAULT_CLASS: _STRANGERS_PER_S}, clock)
        self.dropped_count = 0

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._send_forever(), name="ledger-sink")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                # A batch that is on its way is let through; no other begins.
                async with self._sending:
                    await self._end()
                    while self._buffer and self._channel.get_state() is grpc.ChannelConnectivity.READY:
                        await self._send(self._take())
        except TimeoutError:
            pass  # what is left is counted below
        except Exception:  # noqa: BLE001 - a stop goes on whatever the last rows met
            _log.exception("ledger_sink_broken")
        await self._end()
        if self._buffer:
            self._count_lost(len(self._buffer), "closed")

    def record(self, entry: LedgerEntry) -> None:
        """See `LedgerSink.record`."""
        if entry.row.org == NO_NAMESPACE and self._strangers.take(DEFAULT_CLASS, _STRANGERS) > 0:
            telemetry.add("loom.ledger.rows", outcome="unrecorded")
            return
        if len(self._buffer) >= _MAX_BUFFERED:
            self._count_lost(1, "full")
            return
        self._buffer.append(entry)
        self._arrived.set()

    async def _send_forever(self) -> None:
        wait_s = _FIRST_WAIT_S
        while True:
            try:
                await self._arrived.wait()
                # Rows that come within the interval share a batch.
                await asyncio.sleep(_FLUSH_S)
                await self._send_buffered()
                wait_s = _FIRST_WAIT_S
            except Exception:  # noqa: BLE001 - the top of the task: if it ended, no row would be sent until the next start
                _log.exception("ledger_sink_broken")
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, _LONGEST_WAIT_S)

    async def _send_buffered(self) -> None:
        # Nothing is taken from the buffer before there is somebody to take it: a restart of insights loses no row.
        await self._channel.channel_ready()
        while self._buffer:
            async with self._sending:
                await self._send(self._take())
        # Nothing is awaited between the last look at the buffer and this.
        self._arrived.clear()

    async def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    def _take(self) -> list[LedgerEntry]:
        return [self._buffer.popleft() for _ in range(min(_BATCH_ROWS, len(self._buffer)))]

    async def _send(self, entries: Sequence[LedgerEntry]) -> None:
        try:
            rows = [await self._with_digests(entry) for entry in entries]
            await self._stub.RecordLedger(ledger_pb2.RecordLedgerRequest(rows=rows), timeout=_SEND_TIMEOUT_S)
            telemetry.add("loom.ledger.rows", len(rows), outcome="sent")
        except LoomError as error:
            self._count_lost(len(entries), error.reason.value)
        except asyncio.CancelledError:
            self._count_lost(len(entries), "cancelled")
            raise
        except Exception:
            self._count_lost(len(entries), "broken")
            raise

    async def _with_digests(self, entry: LedgerEntry) -> ledger_pb2.LedgerRow:
        if entry.text_digests and not await self._restricted(entry.row.org, entry.row.namespace):
            entry.row.args.update(entry.text_digests)
        return entry.row

    async def _restricted(self, org: str, namespace: str) -> bool:
        """Returns whether texts leave no trace in a namespace's rows; where that cannot be known, they leave none."""
        try:
            info = await self._directory.namespace_info(org, namespace)
        except LoomError:
            return True
        return info is None or info.restricted

    def _count_lost(self, count: int, reason: str) -> None:
        telemetry.add("loom.ledger.rows", count, outcome="lost")
        # A full buffer loses row after row: one line for every thousand, and one for every other loss.
        before, self.dropped_count = self.dropped_count, self.dropped_count + count
        if reason != "full" or before // _LOG_EVERY != self.dropped_count // _LOG_EVERY or before == 0:
            _log.warning("ledger_rows_lost", count=count, reason=reason, total=self.dropped_count)
