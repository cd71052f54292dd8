"""A channel whose calls of one message each way pass no interceptors of grpc's, and no socket within one process.

An intercepted call is a task and a second call object of grpc's beside the first: a tenth of a millisecond of the 0.7
that a short call took at the least (measured 2026-11-30). Other kinds of calls are rare or long, and keep the
interceptors of the channel below.
"""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self, TypeAlias

import grpc
import grpc.aio

from loom_common.local_server import LocalCall, LocalServer, LocalServers, usual

# Calls and messages of every method pass here, so their types are not known.
Invoke: TypeAlias = Callable[..., Awaitable[Any]]
"""One method of the channel below, called with the request and with grpc's own keywords."""
Around: TypeAlias = Callable[[str, Invoke, Any, float | None, Any, dict[str, Any]], Awaitable[Any]]
"""What each such call is handed to: its path, the method, the request, the stated time and metadata, and the rest."""


class DirectChannel(grpc.aio.Channel):
    """Hands each unary call to a function, and everything else to the channel below.

    Args:
        below: Channel to the address, over sockets.
        around: What each unary call is handed to.
        address: Where the server listens.
        servers: Servers of this process; None where none is called directly.
        max_message_bytes: Largest message that is sent or taken.
    """

    def __init__(
        self,
        below: grpc.aio.Channel,
        around: Around,
        *,
        address: str,
        servers: LocalServers | None,
        max_message_bytes: int,
    ) -> None:
        self._below = below
        self._around = around
        self._address = address
        self._servers = servers
        self._max_message_bytes = max_message_bytes
        self._running: set[asyncio.Task[Any]] = set()
        self._closed = False

    def unary_unary(self, method: str, *codecs: Any, **more: Any) -> Any:
        """See `grpc.aio.Channel.unary_unary`. What is returned gives an awaitable that is no call object."""
        invoke: Invoke = self._below.unary_unary(method, *codecs, **more)
        if self._servers is not None:
            invoke = self._nearest(method, invoke)

        def call(request: Any, *, timeout: float | None = None, metadata: Any = None, **rest: Any) -> Awaitable[Any]:
            return self._around(method, invoke, request, timeout, metadata, rest)

        return call

    def _nearest(self, method: str, over_socket: Invoke) -> Invoke:
        """Returns the method, called directly where the server is in this process and the call is a usual one."""

        def invoke(request: Any, *, timeout: float | None, metadata: Any, **rest: Any) -> Any:
            server = self._local()
            if server is None or rest or not server.takes(method, request):
                return over_socket(request, timeout=timeout, metadata=metadata, **rest)
            pairs = tuple(metadata)
            limit = min(self._max_message_bytes, server.max_message_bytes)
            if (timeout is not None and timeout <= 0) or not usual(pairs) or request.ByteSize() > limit:
                return over_socket(request, timeout=timeout, metadata=metadata)
            call = LocalCall(server, method, request, timeout, pairs, self._max_message_bytes)
            self._running.add(call.task)
            call.task.add_done_callback(self._running.discard)
            return call

        return invoke

    def _local(self) -> LocalServer | None:
        return self._servers.at(self._address) if self._servers is not None and not self._closed else None

    def unary_stream(self, method: str, *codecs: Any, **more: Any) -> Any:
        """See `grpc.aio.Channel.unary_stream`."""
        return self._below.unary_stream(method, *codecs, **more)

    def stream_unary(self, method: str, *codecs: Any, **more: Any) -> Any:
        """See `grpc.aio.Channel.stream_unary`."""
        return self._below.stream_unary(method, *codecs, **more)

    def stream_stream(self, method: str, *codecs: Any, **more: Any) -> Any:
        """See `grpc.aio.Channel.stream_stream`."""
        return self._below.stream_stream(method, *codecs, **more)

    async def close(self, grace: float | None = None) -> None:
        """See `grpc.aio.Channel.close`."""
        self._closed = True
        if self._running and grace:
            await asyncio.wait(set(self._running), timeout=grace)
        for task in set(self._running):
            task.cancel()
        await self._below.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """See `grpc.aio.Channel.get_state`. A server of this process is there as long as it serves."""
        if self._local() is not None:
            return grpc.ChannelConnectivity.READY
        return self._below.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """See `grpc.aio.Channel.wait_for_state_change`."""
        await self._below.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """See `grpc.aio.Channel.channel_ready`."""
        if self._local() is not None:
            return
        await self._below.channel_ready()

    async def __aenter__(self) -> Self:
        await self._below.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
