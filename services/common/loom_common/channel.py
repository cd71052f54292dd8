"""Channels to other services: what rides along with each call, how long it may take, and what comes back."""

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Final, NoReturn, TypeAlias

import grpc
import grpc.aio

from loom_common import headers
from loom_common.attribution import ATTRIBUTION_KEY
from loom_common.auth.service_credentials import ServiceKey
from loom_common.call import Call, current
from loom_common.direct_channel import DirectChannel, Invoke
from loom_common.errors import BackendUnavailable, Cancelled, DeadlineExceeded, from_rpc_error
from loom_common.local_server import local_servers
from loom_common.outgoing import Outgoing
from loom_common.usage import usage_from_metadata

DEFAULT_DEADLINE_S: Final = 20.0
DEFAULT_MAX_MESSAGE_BYTES: Final = 8 * 1024 * 1024

# What is kept of a caller's time to answer it after the call that it waits for ran out. Source: chosen, several hops.
_ANSWER_MARGIN_S: Final = 0.02

# Calls and messages of every method pass here, so their types are not known.
_Details: TypeAlias = grpc.aio.ClientCallDetails
_Continuation: TypeAlias = Callable[[_Details, Any], Any]
_Requests: TypeAlias = AsyncIterable[Any] | Iterable[Any]


def open_channel(
    addr: str,
    service_key: ServiceKey | None = None,
    *,
    deadline_s: float = DEFAULT_DEADLINE_S,
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
) -> grpc.aio.Channel:
    """Returns a channel whose stubs raise LoomError and never AioRpcError. The caller closes it.

    Within `local_calls`, a call of one message each way reaches a server of the same process without a socket.

    What a call states itself, its timeout and its metadata, is left as it is. Added are, of the running call, the
    trace, the caller's token and the run, and with a service key the credential, the request's identifier and the
    attribution.

    Args:
        addr: Where the service listens.
        service_key: Key of the calling service; None for a caller that is none.
        deadline_s: Longest time of a call that answers one message and states no time itself. Units: seconds.
        max_message_bytes: Largest message that is sent or taken.
    """
    preparation = _Preparation(service_key, deadline_s)
    interceptors: Sequence[grpc.aio.ClientInterceptor] = [
        _UnaryStream(preparation),
        _StreamUnary(preparation),
        _StreamStream(preparation),
    ]
    below = grpc.aio.insecure_channel(addr, options=_options(max_message_bytes), interceptors=interceptors)
    return DirectChannel(
        below, preparation.called, address=addr, servers=local_servers(), max_message_bytes=max_message_bytes
    )


def _options(max_message_bytes: int) -> list[tuple[str, str | int]]:
    return [
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.max_metadata_size", headers.MAX_METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", 2 * headers.MAX_METADATA_BYTES),
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        # A peer that starts or restarts is found within half a second.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 400),
        # Several replicas behind one name share the calls.
        ("grpc.lb_policy_name", "round_robin"),
        # Calls are sent again by reason and by those who know that they may be, never by status.
        ("grpc.service_config_disable_resolution", 1),
        ("grpc.enable_http_proxy", 0),
    ]


class _Preparation:
    """What the four kinds of interceptors share."""

    def __init__(self, service_key: ServiceKey | None, deadline_s: float) -> None:
        self._service_key = service_key
        self._deadline_s = deadline_s

    async def called(
        self, method: str, invoke: Invoke, request: Any, stated_s: float | None, metadata: Any, rest: dict[str, Any]
    ) -> Any:
        """Makes one unary call; see `direct_channel.Around`."""
        with Outgoing(method) as seen:
            timeout_s, pairs = self._filled(stated_s, metadata, seen, streams=False)
            call = invoke(request, timeout=timeout_s, metadata=pairs, **rest)
            return await _answer(call)

    def prepared(self, details: _Details, seen: Outgoing, *, streams: bool) -> _Details:
        """Returns the details with deadline and metadata filled in.

        Raises:
            DeadlineExceeded: The caller's time has run out already.
        """
        timeout_s, metadata = self._filled(details.timeout, details.metadata, seen, streams=streams)
        # Everything else, such as grpc's handle of the method, stays.
        return details._replace(  # type: ignore[attr-defined,no-any-return]  # a named tuple that the stub does not show
            timeout=timeout_s, metadata=grpc.aio.Metadata(*metadata)
        )

    async def streamed(self, continuation: _Continuation, details: _Details, request: Any) -> AsyncIterator[Any]:
        """Begins a call that answers with several messages, and returns them; one that does not begin is observed too.

        Raises:
            DeadlineExceeded: The caller's time has run out already.
        """
        with contextlib.ExitStack() as unbegun:
            seen = unbegun.enter_context(Outgoing(details.method))
            call = await continuation(self.prepared(details, seen, streams=True), request)
            unbegun.pop_all()  # from here on the stream ends it
        return _streamed(call, seen)

    def _filled(
        self, stated_s: float | None, metadata: Any, seen: Outgoing, *, streams: bool
    ) -> tuple[float | None, list[tuple[str, str | bytes]]]:
        call = current()
        stated = _as_pairs(metadata)
        names = {key for key, _ in stated}
        added = [(key, value) for key, value in self._metadata_of(call, seen) if key not in names]
        return self._timeout_s(stated_s, call, streams=streams), stated + added

    def _timeout_s(self, stated_s: float | None, call: Call, *, streams: bool) -> float | None:
        limits = [] if stated_s is None else [stated_s]
        if stated_s is None and not streams:
            limits.append(self._deadline_s)
        left_s = call.time_left_s()
        if left_s is not None:
            if left_s <= _ANSWER_MARGIN_S:
                raise DeadlineExceeded("The call did not end within its time. Allow it more, or ask for less.")
            limits.append(left_s - _ANSWER_MARGIN_S)
        return min(limits, default=None)

    def _metadata_of(self, call: Call, seen: Outgoing) -> Iterable[tuple[str, str | bytes]]:
        yield from seen.trace_headers().items()
        if call.token is not None:
            yield headers.AUTHORIZATION, f"Bearer {call.token}"
        if call.run_id:
            yield headers.RUN_ID, call.run_id
        if self._service_key is not None:
            yield headers.SERVICE, self._service_key.mint()
            if call.request_id:
                yield headers.REQUEST_ID, call.request_id
            if call.attribution is not None:
                yield ATTRIBUTION_KEY, call.attribution.to_bytes()


async def _answer(call: Any) -> Any:
    """Waits for the answer of a call that gives one, and returns it."""
    try:
        answer = await call
    except (grpc.aio.AioRpcError, asyncio.CancelledError) as error:
        _raise_translated(error)
    _take_usage(await call.trailing_metadata())
    return answer


async def _streamed(call: Any, seen: Outgoing) -> AsyncIterator[Any]:
    """Yields the messages of a call that gives several."""
    with seen:
        try:
            async for message in call:
                yield message
            _take_usage(await call.trailing_metadata())
        except (grpc.aio.AioRpcError, asyncio.CancelledError) as error:
            _raise_translated(error)


def _raise_translated(error: grpc.aio.AioRpcError | asyncio.CancelledError) -> NoReturn:
    if isinstance(error, grpc.aio.AioRpcError):
        _take_usage(error.trailing_metadata())
        translated = from_rpc_error(error)
        # A server that stops cancels what reaches it meanwhile; had we cancelled it, this would be no AioRpcError.
        if isinstance(translated, Cancelled) and translated.request_id is None:
            raise BackendUnavailable("A service of Loom is stopping; send the call again.") from error
        raise translated from error
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise error
    # Nobody cancelled the waiting task: grpc tells of a channel that was closed under a call in this way.
    raise BackendUnavailable("The connection to a service of Loom was closed.") from error


def _take_usage(trailing: object) -> None:
    usage = usage_from_metadata(_as_pairs(trailing))
    if usage is not None:
        current().usage.merge(usage)


def _as_pairs(metadata: Any) -> list[tuple[str, str | bytes]]:
    return [(str(key), value) for key, value in metadata or ()]


class _UnaryStream(grpc.aio.UnaryStreamClientInterceptor):
    def __init__(self, preparation: _Preparation) -> None:
        self._preparation = preparation

    async def intercept_unary_stream(self, continuation: _Continuation, details: _Details, request: Any) -> Any:
        return await self._preparation.streamed(continuation, details, request)


class _StreamUnary(grpc.aio.StreamUnaryClientInterceptor):
    def __init__(self, preparation: _Preparation) -> None:
        self._preparation = preparation

    async def intercept_stream_unary(self, continuation: _Continuation, details: _Details, requests: _Requests) -> Any:
        with Outgoing(details.method) as seen:
            call = await continuation(self._preparation.prepared(details, seen, streams=False), requests)
            await _answer(call)
            return call


class _StreamStream(grpc.aio.StreamStreamClientInterceptor):
    def __init__(self, preparation: _Preparation) -> None:
        self._preparation = preparation

    async def intercept_stream_stream(self, continuation: _Continuation, details: _Details, requests: _Requests) -> Any:
        return await self._preparation.streamed(continuation, details, requests)
