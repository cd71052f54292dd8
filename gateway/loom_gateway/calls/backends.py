"""The services behind the gateway, by the name that owns an operation."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Protocol

import grpc.aio
from google.protobuf import message_factory
from google.protobuf.message import Message

from loom_common.call import Call
from loom_common.errors import LoomError, UnknownOp, from_rpc_error
from loom_common.ops import OpSpec


class Backends(Protocol):
    """Answers operations."""

    async def invoke(self, spec: OpSpec, request: Message, call: Call, headers: Mapping[str, str]) -> Message:
        """Returns the owning service's answer. What it spent is added to the call's usage.

        Args:
            spec: Operation to call.
            request: Its request.
            call: The running call: its deadline, token and attribution go along.
            headers: Further metadata.

        Raises:
            LoomError: What the service answered, or that it cannot be reached.
        """
        ...

    def stream(
        self,
        spec: OpSpec,
        request: Message,
        call: Call,
        headers: Mapping[str, str],
        more: AsyncIterator[Message] | None = None,
    ) -> AsyncGenerator[Message, None]:
        """Yields the messages that the owning service answers with; closing it ends the call there too.

        Args:
            spec: Operation to call.
            request: Its request.
            call: The running call: its deadline, token and attribution go along.
            headers: Further metadata.
            more: Messages behind the request, of an operation that takes several.

        Raises:
            LoomError: As `invoke`, before the first message or after any.
        """
        ...


class GrpcBackends:
    """Calls services over channels of `loom_common.channel`, which carry the call's credentials, deadline and trace.

    Args:
        channels: One channel for each name that owns operations, such as `memory`.
    """

    def __init__(self, channels: Mapping[str, grpc.aio.Channel]) -> None:
        self._channels = dict(channels)
        self._methods: dict[str, grpc.aio.UnaryUnaryMultiCallable[Message, Message]] = {}

    @property
    def channels(self) -> Mapping[str, grpc.aio.Channel]:
        """The channels, by service."""
        return self._channels

    async def invoke(self, spec: OpSpec, request: Message, call: Call, headers: Mapping[str, str]) -> Message:
        """See `Backends.invoke`."""
        method = self._methods.get(spec.method) or self._open(spec)
        try:
            return await method(request, timeout=call.time_left_s(), metadata=tuple(headers.items()))
        except grpc.aio.AioRpcError as error:
            # Channels translate errors themselves; one made elsewhere may not.
            raise from_rpc_error(error) from error

    async def stream(
        self,
        spec: OpSpec,
        request: Message,
        call: Call,
        headers: Mapping[str, str],
        more: AsyncIterator[Message] | None = None,
    ) -> AsyncGenerator[Message, None]:
        """See `Backends.stream`."""
        channel, metadata = self._channel(spec), tuple(headers.items())
        to_bytes = message_factory.GetMessageClass(spec.request).SerializeToString
        from_bytes = message_factory.GetMessageClass(spec.response).FromString
        answer: grpc.aio.UnaryStreamCall[Message, Message] | grpc.aio.StreamStreamCall[Message, Message]
        if spec.request_streaming:
            several: grpc.aio.StreamStreamMultiCallable[Message, Message] = channel.stream_stream(
                spec.method, request_serializer=to_bytes, response_deserializer=from_bytes
            )
            answer = several(_all(request, more), timeout=call.time_left_s(), metadata=metadata)
        else:
            single: grpc.aio.UnaryStreamMultiCallable[Message, Message] = channel.unary_stream(
                spec.method, request_serializer=to_bytes, response_deserializer=from_bytes
            )
            answer = single(request, timeout=call.time_left_s(), metadata=metadata)
        try:
            async for message in answer:
                yield message
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        finally:
            answer.cancel()  # of a call that has ended it is nothing

    def _open(self, spec: OpSpec) -> "grpc.aio.UnaryUnaryMultiCallable[Message, Message]":
        method: grpc.aio.UnaryUnaryMultiCallable[Message, Message] = self._channel(spec).unary_unary(
            spec.method,
            request_serializer=message_factory.GetMessageClass(spec.request).SerializeToString,
            response_deserializer=message_factory.GetMessageClass(spec.response).FromString,
        )
        self._methods[spec.method] = method
        return method

    def _channel(self, spec: OpSpec) -> grpc.aio.Channel:
        channel = self._channels.get(spec.owner)
        if channel is None:
            raise _not_served(spec)
        return channel


async def _all(first: Message, more: AsyncIterator[Message] | None) -> AsyncIterator[Message]:
    yield first
    if more is not None:
        async for message in more:
            yield message


def _not_served(spec: OpSpec) -> LoomError:
    return UnknownOp(f"No service of this deployment answers {spec.name}.", detail={"op": spec.name})
