"""The shape that all interceptors share, for each of the four kinds of handlers."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import StringValue

from loom_common.call import current
from loom_common.errors import Conflict, InvalidArgument
from loom_common.interceptors.errors import ErrorInterceptor
from loom_common.interceptors.rpc import Chain, Handler, Proceed, Rpc, RpcInterceptor, Unparsable


class Recorder(RpcInterceptor):
    """Notes what passes; where it is strict, refuses messages that say `no`."""

    contract_only = False

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self.wraps = 0
        self.events: list[str] = []
        self.left = asyncio.Event()

    def wrapped(self, method: str, handler: Handler, proceed: Proceed) -> Proceed:
        self.wraps += 1
        return super().wrapped(method, handler, proceed)

    async def around(self, rpc: Rpc, request: Any, proceed: Proceed) -> Any:
        self.events.append("enter")
        try:
            return await proceed(rpc, request)
        finally:
            self.events.append(f"leave {rpc.outcome}")
            self.left.set()

    async def on_request(self, rpc: Rpc, message: Message | Unparsable) -> None:
        assert isinstance(message, StringValue)
        self.events.append(message.value)
        if self.strict and message.value == "no":
            raise InvalidArgument.of("value", "says no.")


async def unary_unary(request: StringValue, context: Any) -> StringValue:
    assert current().request_id
    return StringValue(value=request.value.upper())


async def unary_stream(request: StringValue, context: Any) -> AsyncIterator[StringValue]:
    for letter in request.value:
        yield StringValue(value=letter)
    if request.value == "fail":
        raise Conflict("Failed.")
    if request.value == "wait":
        await asyncio.Event().wait()


async def unary_writer(request: StringValue, context: Any) -> None:
    for letter in request.value:
        await context.write(StringValue(value=letter))


async def stream_unary(requests: AsyncIterator[StringValue], context: Any) -> StringValue:
    return StringValue(value="".join([request.value async for request in requests]))


async def stream_stream(requests: AsyncIterator[StringValue], context: Any) -> AsyncIterator[StringValue]:
    async for request in requests:
        yield StringValue(value=request.value.upper())


HANDLERS = {
    "UnaryUnary": (grpc.unary_unary_rpc_method_handler, unary_unary),
    "UnaryStream": (grpc.unary_stream_rpc_method_handler, unary_stream),
    "UnaryWriter": (grpc.unary_stream_rpc_method_handler, unary_writer),
    "StreamUnary": (grpc.stream_unary_rpc_method_handler, stream_unary),
    "StreamStream": (grpc.stream_stream_rpc_method_handler, stream_stream),
}


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
async def channel(recorder: Recorder) -> AsyncIterator[grpc.aio.Channel]:
    inner = Recorder(strict=True)
    server = grpc.aio.server(interceptors=[Chain([recorder, ErrorInterceptor(), inner])])
    handlers = {
        name: make(behavior, StringValue.FromString, StringValue.SerializeToString)  # type: ignore[operator]
        for name, (make, behavior) in HANDLERS.items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Letters", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as opened:
        yield opened
    await server.stop(0)


def method(channel: grpc.aio.Channel, name: str) -> Any:
    kinds = {"UnaryWriter": "unary_stream"}
    snake = kinds.get(name) or "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")
    return getattr(channel, snake)(
        f"/test.Letters/{name}",
        request_serializer=StringValue.SerializeToString,
        response_deserializer=StringValue.FromString,
    )


async def collected(messages: AsyncIterator[StringValue]) -> list[str]:
    return [message.value async for message in messages]


async def sent(*texts: str) -> AsyncIterator[StringValue]:
    for text in texts:
        yield StringValue(value=text)


async def test_each_kind_is_answered_and_seen_once(channel: grpc.aio.Channel, recorder: Recorder) -> None:
    one = StringValue(value="ab")
    assert (await method(channel, "UnaryUnary")(one)).value == "AB"
    assert recorder.events == ["enter", "ab", "leave ok"]
    for name in ("UnaryStream", "UnaryWriter"):
        recorder.events.clear()
        assert [letter.value async for letter in method(channel, name)(one)] == ["a", "b"]
        assert recorder.events == ["enter", "ab", "leave ok"]
    recorder.events.clear()
    assert (await method(channel, "StreamUnary")(sent("a", "b"))).value == "ab"
    assert recorder.events == ["enter", "a", "b", "leave ok"]
    recorder.events.clear()
    assert [letter.value async for letter in method(channel, "StreamStream")(sent("a", "b"))] == ["A", "B"]
    assert recorder.events == ["enter", "a", "b", "leave ok"]


async def test_a_handler_is_wrapped_at_its_first_call_alone(channel: grpc.aio.Channel, recorder: Recorder) -> None:
    for _ in range(2):
        await method(channel, "UnaryUnary")(StringValue(value="a"))
    assert recorder.wraps == 1
    assert [letter.value async for letter in method(channel, "UnaryStream")(StringValue(value="a"))] == ["a"]
    assert recorder.wraps == 2


@pytest.mark.parametrize("name", ["StreamUnary", "StreamStream"])
async def test_a_message_refused_within_a_stream_ends_it_with_its_reason(
    channel: grpc.aio.Channel, recorder: Recorder, name: str
) -> None:
    call = method(channel, name)(sent("a", "no", "b"))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await (call if name == "StreamUnary" else collected(call))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert recorder.events[-1] == "leave INVALID_ARGUMENT"


async def test_a_stream_that_fails_midway_ends_with_its_reason(channel: grpc.aio.Channel, recorder: Recorder) -> None:
    stream = aiter(method(channel, "UnaryStream")(StringValue(value="fail")))
    assert [(await anext(stream)).value for _ in range(4)] == ["f", "a", "i", "l"]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await anext(stream)
    assert caught.value.code() is grpc.StatusCode.ABORTED
    assert recorder.events[-1] == "leave CONFLICT"


async def test_a_caller_that_leaves_a_stream_leaves_nothing_behind(
    channel: grpc.aio.Channel, recorder: Recorder
) -> None:
    call = method(channel, "UnaryStream")(StringValue(value="wait"))
    async with asyncio.timeout(5):
        async for _ in call:
            break
        call.cancel()
        await recorder.left.wait()
    assert recorder.events[-1] == "leave CANCELLED"
