"""A channel whose calls of one message each way pass no interceptors of grpc's.

An intercepted call is a task and a second call object of grpc's beside the first: a tenth of a millisecond of the 0.7
that a short call took at the least (measured 2026-11-30). Other kinds of calls are rare or long, and keep the
interceptors of the channel below.
"""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self, TypeAlias

import grpc
import grpc.aio

# Calls and messages of every method pass here, so their types are not known.
Invoke: TypeAlias = Callable[..., Awaitable[Any]]
"""One method of the channel below, called with the request and with grpc's own keywords."""
Around: TypeAlias = Callable[[str, Invoke, Any, float | None, Any, dict[str, Any]], Awaitable[Any]]
"""What each such call is handed to: its path, the method, the request, the stated time and metadata, and the rest."""


class DirectChannel(grpc.aio.Channel):
    """Hands each unary call to a function, and everything else to the channel below."""

    def __init__(self, below: grpc.aio.Channel, around: Around) -> None:
        self._below = below
        self._around = around

    def unary_unary(self, method: str, *codecs: Any, **more: Any) -> Any:
        """See `grpc.aio.Channel.unary_unary`. What is returned gives an awaitable that is no call object."""
        invoke = self._below.unary_unary(method, *codecs, **more)

        def call(request: Any, *, timeout: float | None = None, metadata: Any = None, **rest: Any) -> Awaitable[Any]:
            return self._around(method, invoke, request, timeout, metadata, rest)

        return call

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
        await self._below.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """See `grpc.aio.Channel.get_state`."""
        return self._below.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """See `grpc.aio.Channel.wait_for_state_change`."""
        await self._below.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """See `grpc.aio.Channel.channel_ready`."""
        await self._below.channel_ready()

    async def __aenter__(self) -> Self:
        await self._below.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._below.__aexit__(kind, error, traceback)
