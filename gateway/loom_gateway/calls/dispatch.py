"""The one way of every call through the gateway, whatever the transport: verify, read, forward, record."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import structlog
from google.protobuf.message import Message
from opentelemetry import trace

from loom_common.attribution import Attribution, Kind
from loom_common.auth.claims import NO_NAMESPACE, Claims
from loom_common.auth.verifier import TokenVerifier
from loom_common.call import Call, bind
from loom_common.clock import Clock, SystemClock
from loom_common.errors import DeadlineExceeded, InternalError, LoomError, Reason, UnknownOp
from loom_common.ledger import LedgerSink, ledger_entry
from loom_common.ops import OpRole, OpSpec
from loom_common.telemetry.spans import ServerSpan
from loom_gateway.calls.admission import Admission
from loom_gateway.calls.backends import Backends
from loom_gateway.calls.caller import IDEMPOTENCY_HEADER, NAMESPACE_HEADER, RUN_ID_HEADER, Caller
from loom_gateway.calls.scope import addressed_scope, named_user, no_namespace
from loom_gateway.calls.unknown import unknown_op_entry
from loom_gateway.contract.catalogue import PublicOp
from loom_gateway.contract.strict_json import shown

RECORDER: Final = "gateway"

ReadRequest = Callable[[], Awaitable[Message]]
"""Reads the request of a call; runs after the caller is known, so that nobody else makes the gateway read a body."""

_OK: Final = "ok"
_CANCELLED: Final = Reason.CANCELLED.value

# What a service answers before an operation's work begins.
_REFUSALS: Final = frozenset(
    {
        Reason.INVALID_ARGUMENT,
        Reason.MALFORMED_REQUEST,
        Reason.UNKNOWN_OP,
        Reason.UNAUTHENTICATED,
        Reason.TOKEN_EXPIRED,
        Reason.TOKEN_REVOKED,
        Reason.AUTH_INSUFFICIENT,
        Reason.PAYLOAD_TOO_LARGE,
        Reason.RATE_LIMITED,
        Reason.BUDGET_EXHAUSTED,
        Reason.OVERLOADED,
    }
)

# What a service answers where the caller may not have the namespace, which then gets no row of the call.
_NOT_ADMITTED: Final = frozenset({Reason.AUTH_INSUFFICIENT, Reason.NOT_FOUND})

_log = structlog.get_logger("loom.access")
# Asked first: where no line per call is written, the facts for one need not be gathered.
_level = logging.getLogger("loom.access")
_tracer = trace.get_tracer("loom_gateway")


@dataclass(slots=True)
class _Passage:
    """One call on its way."""

    spec: OpSpec
    call: Call
    caller: Caller
    started_at: datetime
    started_s: float
    request: Message | None = None
    response: Message | None = None
    outcome: str = _OK
    handled: bool = False

    def elapsed_ms(self) -> float:
        return (time.monotonic() - self.started_s) * 1000


class Dispatcher:
    """Verifies callers, forwards their calls to the owning services and records each.

    Args:
        verifier: Verifies bearer tokens.
        backends: The services.
        ledger: Takes one row per call, refused ones included.
        deadline_s: Units: seconds that a call may take; its caller may allow it less.
        clock: Clock of the ledger's rows.
        admission: How many calls run at once.
    """

    def __init__(
        self,
        verifier: TokenVerifier,
        backends: Backends,
        ledger: LedgerSink,
        *,
        deadline_s: float,
        clock: Clock | None = None,
        admission: Admission | None = None,
    ) -> None:
        self._verifier = verifier
        self._backends = backends
        self._ledger = ledger
        self._deadline_s = deadline_s
        self._clock = clock or SystemClock()
        self._admission = admission or Admission()

    def authenticate(self, caller: Caller) -> Claims:
        """Returns what the caller's token says.

        Raises:
            Unauthenticated: There is no token, or one that this deployment did not issue.
            TokenExpired: Its time has passed.
            TokenRevoked: It was ended before its time.
            BackendUnavailable: Tokens cannot be verified now.
        """
        return self._verifier.verify(caller.token())

    async def run(self, op: PublicOp, caller: Caller, read: ReadRequest) -> Message:
        """Returns the answer to one call.

        Raises:
            LoomError: Why it is not answered. A defect of ours is an `InternalError`, with its cause in the log.
        """
        passage = self._passage(op, caller, time.monotonic() + self._deadline_s)
        room = self._admission.room(op.spec)
        with bind(passage.call), self._accounted(passage):
            request, headers = await self._prepared(passage, read)
            await room.enter(passage.call.time_left_s())
            try:
                passage.handled = True
                passage.response = response = await self._backends.invoke(passage.spec, request, passage.call, headers)
            finally:
                room.leave()
            return response

    @contextlib.asynccontextmanager
    async def stream(
        self, op: PublicOp, caller: Caller, read: ReadRequest, more: AsyncIterator[Message] | None = None
    ) -> AsyncIterator[AsyncIterator[Message]]:
        """Yields the messages of an operation that answers several, as they come.

        The call ends with the block, however many messages were taken by then, and is recorded once. It has no
        deadline but its caller's own. `more` are the messages behind the first, of one that takes several.

        Raises:
            LoomError: Why it is not answered, or why it ended early.
        """
        passage = self._passage(op, caller, None)
        room = self._admission.room(op.spec)
        with bind(passage.call), self._accounted(passage):
            request, headers = await self._prepared(passage, read)
            await room.enter(passage.call.time_left_s())
            try:
                passage.handled = True
                messages = self._backends.stream(passage.spec, request, passage.call, headers, more)
                async with contextlib.aclosing(messages):
                    yield messages
            finally:
                room.leave()

    def refuse_unknown(self, name: str, caller: Caller) -> LoomError:
        """Records a call of an operation that does not exist, and returns its error.

        A caller that is not known is told that first: a stranger learns nothing of what there is.
        """
        claims: Claims | None = None
        try:
            claims = self.authenticate(caller)
            error: LoomError = UnknownOp(
                f"This build has no operation {shown(name)!r}; /openapi.json lists what it has.",
                detail={"op": shown(name)},
            )
        except LoomError as refusal:
            error = refusal
        self._ledger.record(unknown_op_entry(caller, claims, error.reason, RECORDER, self._clock.now()))
        return error

    def record_refusal(self, caller: Caller, error: LoomError) -> None:
        """Records a request that was refused before it was read so far that it named an operation."""
        self._ledger.record(unknown_op_entry(caller, None, error.reason, RECORDER, self._clock.now()))

    def _passage(self, op: PublicOp, caller: Caller, deadline: float | None) -> _Passage:
        call = Call(
            op=op.name,
            request_id=caller.request_id,
            transport=caller.transport.value,
            deadline=deadline,
            run_id=caller.headers.get(RUN_ID_HEADER),
            idempotency_key=caller.headers.get(IDEMPOTENCY_HEADER),
        )
        return _Passage(op.spec, call, caller, self._clock.now(), time.monotonic())

    async def _prepared(self, passage: _Passage, read: ReadRequest) -> tuple[Message, Mapping[str, str]]:
        """Returns the request and the headers that go on with it, once it is known who asks and for what."""
        call, caller = passage.call, passage.caller
        if passage.spec.role is not OpRole.OPEN or caller.authorization:
            call.token = caller.token()
            call.claims = self._verifier.verify(call.token)
        headers = caller.forwarded()
        allowed_s = caller.timeout_s()
        if allowed_s is not None:
            until = passage.started_s + allowed_s
            call.deadline = until if call.deadline is None else min(call.deadline, until)
        passage.request = request = await _read_in_time(read, call.time_left_s())
        if call.claims is not None:
            call.scope = addressed_scope(request, call.claims, headers.get(NAMESPACE_HEADER, ""))
            call.attribution = _attribution(passage.spec, call.claims, call, named_user(request))
        return request, headers

    @contextlib.contextmanager
    def _accounted(self, passage: _Passage) -> Iterator[None]:
        """Traces and records what happens inside, and lets nothing but a `LoomError` or a cancellation out."""
        attributes = {"loom.op": passage.spec.name, "loom.request_id": passage.call.request_id}
        with ServerSpan(_tracer, passage.spec.name, passage.caller.trace, attributes) as span:
            try:
                yield
            except LoomError as error:
                passage.outcome = error.reason.value
                passage.handled = passage.handled and error.reason not in _REFUSALS
                if passage.call.claims is not None and error.reason in _NOT_ADMITTED:
                    # An org-wide token may name a namespace that is not there, or none of its own.
                    passage.call.scope = no_namespace(passage.call.claims)
                raise
            except asyncio.CancelledError:
                passage.outcome = _CANCELLED
                raise
            except Exception as error:
                passage.outcome = Reason.INTERNAL.value
                _log.exception("call_failed", op=passage.spec.name, request_id=passage.call.request_id)
                raise InternalError from error
            finally:
                if passage.outcome != _OK:
                    span.set_attribute("loom.reason", passage.outcome)
                self._record(passage)

    def _record(self, passage: _Passage) -> None:
        call, latency_ms = passage.call, passage.elapsed_ms()
        if _level.isEnabledFor(logging.INFO):
            _log.info(
                "call",
                op=call.op,
                transport=call.transport,
                outcome=passage.outcome,
                latency_ms=round(latency_ms, 2),
                request_id=call.request_id,
                subject=call.claims.sub if call.claims else None,
                org=call.scope.org if call.scope else None,
                namespace=call.scope.namespace if call.scope else None,
            )
        self._ledger.record(
            ledger_entry(
                passage.spec,
                call,
                passage.request,
                passage.response,
                recorder=RECORDER,
                started_at=passage.started_at,
                latency_ms=latency_ms,
                outcome=passage.outcome,
                refused=not passage.handled,
            )
        )


async def _read_in_time(read: ReadRequest, left_s: float | None) -> Message:
    try:
        async with asyncio.timeout(left_s):
            return await read()
    except TimeoutError:
        raise DeadlineExceeded("The request was not there within the call's time. Allow it more.") from None


def _attribution(spec: OpSpec, claims: Claims, call: Call, user_id: str) -> Attribution:
    assert call.scope is not None, "set before"
    namespace = call.scope.namespace
    return Attribution(
        org=claims.org,
        namespace="" if namespace == NO_NAMESPACE else namespace,
        subject=claims.sub,
        user_id=user_id or claims.user_id,
        feature=spec.name,
        kind=Kind.REQUEST,
        read_only=spec.read_only,
        run_id=call.run_id or "",
    )
