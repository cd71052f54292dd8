"""One RPC on its way through the interceptors, and the shape that all of them share.

gRPC knows four kinds of handlers and two styles of streaming. They are brought to one shape here, so that an
interceptor is one coroutine around the call and, where it looks at messages, one function of them.
"""

import contextlib
import inspect
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypeAlias

import grpc
import grpc.aio
from google.protobuf.message import Message

from loom_common import headers
from loom_common.call import Call, bind
from loom_common.errors import ERRORS, Reason
from loom_common.ids import new_id
from loom_common.ops import OpSpec, op_by_method

# gRPC types handlers by their messages, and an interceptor stands before handlers of every message there is.
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Behavior: TypeAlias = Callable[[Any, "ServicerContext"], Awaitable[Any]]
ServicerContext: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Proceed: TypeAlias = Callable[["Rpc", Any], Awaitable[Any]]
"""The rest of a call, from one interceptor inwards: of its RPC and its request, or requests, it returns the answer."""
Continuation: TypeAlias = "Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]"

OK_OUTCOME: Final = "ok"

_CODES: Final[Mapping[object, grpc.StatusCode]] = {int(code.value[0]): code for code in grpc.StatusCode}

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")


@dataclass(slots=True)
class Rpc:
    """What interceptors know of the RPC that they stand around."""

    method: str
    """Path, such as `/loom.memory.v1.MemoryService/SetMemory`."""
    op: OpSpec | None
    """Operation of the contract; None for health, reflection and channelz."""
    call: Call
    """What the service itself sees of the call."""
    context: ServicerContext
    """gRPC's own view."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Metadata that is text; of a repeated key the first value."""
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    """When it came in."""
    started_s: float = field(default_factory=time.monotonic)
    """When it came in, on the clock of `time.monotonic`. Units: seconds."""
    outcome: str = OK_OUTCOME
    """`ok`, or the reason of the error that it was answered with."""
    handled: bool = False
    """Whether it reached the service; otherwise it was refused before its work began."""
    request: Message | None = None
    """First request message, once one was read."""
    response: Message | None = None
    """Response message of a call that answers one."""

    def status_code(self) -> grpc.StatusCode:
        """Returns the gRPC status that it ends with, as far as that is decided."""
        if self.outcome in ERRORS:
            return ERRORS[Reason(self.outcome)].grpc
        # A servicer of gRPC's own, such as health, aborts with a code; one that did not abort has none yet.
        code: object = self.context.code()
        return code if isinstance(code, grpc.StatusCode) else _CODES.get(code, grpc.StatusCode.OK)

    def elapsed_ms(self) -> float:
        """Returns how long it has taken so far. Units: milliseconds."""
        return (time.monotonic() - self.started_s) * 1000


class Unparsable:
    """Stands for request bytes that are not the message they should be.

    A deserialiser that raises ends the call as UNKNOWN before any interceptor runs.
    """


class RpcInterceptor:
    """Stands around every RPC of a server, of all four kinds."""

    contract_only = True
    """Whether it stands around operations of the contract alone, and lets health, reflection and channelz pass."""

    async def around(self, rpc: Rpc, request: Any, proceed: Proceed) -> Any:
        """Runs the rest of the call, which `proceed` is given the same two for, and returns its answer.

        A coroutine and no context manager: entering and leaving one of those costs ten times as much, and every call
        passes ten of these.
        """
        return await proceed(rpc, request)

    async def on_request(self, rpc: Rpc, message: Message | Unparsable) -> None:
        """Looks at one request message before the service does."""

    def wrapped(self, method: str, handler: Handler, proceed: Proceed) -> Proceed:
        """Returns the rest of a method's calls with this around it."""
        if self.contract_only and op_by_method(method) is None:
            return proceed
        inner = self._seeing(handler, proceed) if _overrides(self, RpcInterceptor.on_request) else proceed
        if not _overrides(self, RpcInterceptor.around):
            return inner
        return partial(self.around, proceed=inner)

    def _seeing(self, handler: Handler, proceed: Proceed) -> Proceed:
        async def one(rpc: Rpc, request: Any) -> Any:
            await self.on_request(rpc, request)
            return await proceed(rpc, request)

        async def several(rpc: Rpc, requests: Any) -> Any:
            return await proceed(rpc, self._checked(rpc, requests))

        return several if handler.request_streaming else one

    async def _checked(
        self, rpc: Rpc, messages: AsyncIterator[Message | Unparsable]
    ) -> AsyncIterator[Message | Unparsable]:
        async for message in messages:
            await self.on_request(rpc, message)
            yield message


def _overrides(interceptor: RpcInterceptor, method: Callable[..., Any]) -> bool:
    return getattr(type(interceptor), method.__name__) is not method


class Chain(grpc.aio.ServerInterceptor):
    """What gRPC is given: all interceptors as one, put around each handler once and not again at each call.

    It makes the `Rpc` and the `Call`, and keeps bytes that do not parse from ending the call.
    """

    def __init__(self, interceptors: Sequence[RpcInterceptor]) -> None:
        """Takes what stands around each call, outermost first."""
        self._interceptors = tuple(interceptors)
        self._wrapped: dict[str, tuple[Handler, Handler]] = {}

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> "Handler | None":
        """Wraps the handler of a method; a method that nobody serves is left to gRPC, which answers UNIMPLEMENTED."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = _text(handler_call_details.method)
        bare, wrapped = self._wrapped.get(method, (None, handler))
        if bare is not handler:
            wrapped = self.wrapped(method, handler)
            self._wrapped[method] = handler, wrapped
        return wrapped

    def wrapped(self, method: str, handler: Handler) -> Handler:
        """Returns the handler of a method with all of them around it."""
        inner, op = one_shape(handler), op_by_method(method)

        async def serve(rpc: Rpc, request: Any) -> Any:
            response = await inner(request, rpc.context)
            if isinstance(response, Message):
                rpc.response = response
            return response

        proceed: Proceed = serve
        for interceptor in reversed(self._interceptors):
            proceed = interceptor.wrapped(method, handler, proceed)

        async def behavior(request: Any, context: ServicerContext) -> Any:
            rpc = _opened(method, op, context)
            if handler.request_streaming:
                request = _noting_first(rpc, request)
            elif isinstance(request, Message):
                rpc.request = request
            with bind(rpc.call):
                return await proceed(rpc, request)

        wrapped = with_behavior(handler, behavior)
        return with_deserializer(wrapped, _forgiving(handler.request_deserializer))


def _opened(method: str, op: OpSpec | None, context: ServicerContext) -> Rpc:
    left_s = context.time_remaining()
    call = Call(op=op.name if op else "", deadline=None if left_s is None else time.monotonic() + left_s)
    rpc = Rpc(method, op, call, context, _texts(context))
    call.request_id = _request_id(rpc)
    return rpc


async def _noting_first(rpc: Rpc, messages: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for message in messages:
        if rpc.request is None and isinstance(message, Message):
            rpc.request = message
        yield message


def _texts(context: ServicerContext) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in context.invocation_metadata() or ():
        if isinstance(value, str):
            found.setdefault(key, value)
    return found


def _request_id(rpc: Rpc) -> str:
    # Only services pass an identifier on; from outside it could name another's call. The credential is checked later:
    # until then the identifier is in the logs alone.
    given = rpc.headers.get(headers.REQUEST_ID) if headers.SERVICE in rpc.headers else None
    return given if given is not None and _REQUEST_ID.fullmatch(given) else new_id()


def _forgiving(deserialize: Callable[[bytes], Any] | None) -> Callable[[bytes], Any] | None:
    if deserialize is None:
        return None

    def read(data: bytes) -> Any:
        try:
            return deserialize(data)
        except Exception:  # noqa: BLE001 - protobuf's DecodeError, and ValueError or RecursionError of its backends
            return Unparsable()

    return read


def one_shape(handler: Handler) -> Behavior:
    """Returns the handler's behavior as a coroutine function.

    A streaming one writes its messages itself. As a generator it would be left open when the caller goes away between
    two messages, and be closed later in another task, where context variables cannot be reset and spans never end.
    """
    behavior = _behavior_of(handler)
    if not handler.response_streaming or inspect.iscoroutinefunction(behavior):
        return behavior  # type: ignore[no-any-return]  # grpc types it as Any

    async def write_all(request: Any, context: ServicerContext) -> None:
        async with contextlib.aclosing(behavior(request, context)) as messages:
            async for message in messages:
                await context.write(message)

    return write_all


def with_behavior(handler: Handler, behavior: Behavior) -> Handler:
    """Returns a handler of the same kind and messages with another behavior."""
    makers = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }
    make = makers[bool(handler.request_streaming), bool(handler.response_streaming)]
    return make(behavior, handler.request_deserializer, handler.response_serializer)


def with_deserializer(handler: Handler, deserializer: Callable[[bytes], Any] | None) -> Handler:
    """Returns the handler with another way to read requests."""
    return handler._replace(request_deserializer=deserializer)  # type: ignore[attr-defined,no-any-return]  # a named tuple


def _behavior_of(handler: Handler) -> Any:
    if handler.response_streaming:
        return handler.stream_stream if handler.request_streaming else handler.unary_stream
    return handler.stream_unary if handler.request_streaming else handler.unary_unary


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
