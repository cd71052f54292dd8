"""How failures are answered, over a real socket."""

import asyncio

import grpc
import pytest
from support.grpc import MemoryUnderTest, bearer, error_info, pairs, reason_of, retry_info

from loom.memory.v1 import memory_pb2 as pb
from loom_common.call import current
from loom_common.errors import Conflict, EmbedTimeout
from loom_common.usage import USAGE_KEY, Usage

GET = pb.GetMemoryRequest(key="k")


async def failed(memory: MemoryUnderTest, error: Exception) -> grpc.aio.AioRpcError:
    memory.servicer.error = error
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await memory.stub.GetMemory(GET, metadata=bearer(memory.deployment.token()))
    return caught.value


async def test_a_loom_error_is_answered_with_its_reason_and_detail(memory: MemoryUnderTest) -> None:
    error = await failed(memory, Conflict("Version 3 was expected.", detail={"expected": "3"}))
    assert (error.code(), error.details()) == (grpc.StatusCode.ABORTED, "Version 3 was expected.")
    assert (error_info(error).reason, error_info(error).metadata["expected"]) == ("CONFLICT", "3")


async def test_the_time_to_wait_rides_along(memory: MemoryUnderTest) -> None:
    error = await failed(memory, EmbedTimeout("The embedding did not come.", retry_after_s=1.5))
    assert retry_info(error).retry_delay.ToMilliseconds() == 1500


async def test_an_unknown_exception_shows_nothing_of_itself(memory: MemoryUnderTest) -> None:
    error = await failed(memory, RuntimeError("the password is hunter2"))
    assert (error.code(), reason_of(error)) == (grpc.StatusCode.INTERNAL, "INTERNAL")
    assert "hunter2" not in str(error.details()) + str(error.trailing_metadata())


async def test_an_unknown_operation_is_unimplemented(memory: MemoryUnderTest) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await memory.raw.unary_unary("/loom.memory.v1.MemoryService/Nothing")(b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_usage_and_request_id_ride_in_the_trailing_metadata(memory: MemoryUnderTest) -> None:
    memory.servicer._note = _spending(7)  # type: ignore[method-assign]  # the stand-in's own hook
    call = memory.stub.GetMemory(GET, metadata=bearer(memory.deployment.token()))
    await call
    trailing = pairs(await call.trailing_metadata())
    spent = trailing[USAGE_KEY]
    assert isinstance(spent, bytes)
    assert Usage.from_bytes(spent).embedding_tokens == 7
    assert trailing["x-request-id"]


async def test_usage_of_a_failed_call_rides_along_too(memory: MemoryUnderTest) -> None:
    memory.servicer._note = _spending(7, Conflict("no"))  # type: ignore[method-assign]  # the stand-in's own hook
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await memory.stub.GetMemory(GET, metadata=bearer(memory.deployment.token()))
    spent = pairs(caught.value.trailing_metadata())[USAGE_KEY]
    assert isinstance(spent, bytes)
    assert Usage.from_bytes(spent).embedding_tokens == 7


async def test_a_call_ends_with_its_callers_deadline(memory: MemoryUnderTest) -> None:
    ended = asyncio.Event()

    async def wait(request: object) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    memory.servicer._note = wait  # type: ignore[method-assign]  # the stand-in's own hook
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await memory.stub.GetMemory(GET, metadata=bearer(memory.deployment.token()), timeout=0.3)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    async with asyncio.timeout(5):
        await ended.wait()


async def test_a_call_without_a_deadline_ends_with_the_servers_longest_time(memory: MemoryUnderTest) -> None:
    async def wait(request: object) -> None:
        await asyncio.Event().wait()

    memory.servicer._note = wait  # type: ignore[method-assign]  # the stand-in's own hook
    async with (
        memory.deployment.serving(memory.servicer.service, LOOM_GRPC_MAX_CALL_S=0.2) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        stub = type(memory.stub)(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.GetMemory(GET, metadata=bearer(memory.deployment.token()))
    assert reason_of(caught.value) == "DEADLINE_EXCEEDED"


async def test_a_callers_leaving_ends_the_work(memory: MemoryUnderTest) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait(request: object) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    memory.servicer._note = wait  # type: ignore[method-assign]  # the stand-in's own hook
    call = memory.stub.GetMemory(GET, metadata=bearer(memory.deployment.token()))
    async with asyncio.timeout(5):
        await begun.wait()
        call.cancel()
        await ended.wait()


def _spending(tokens: int, error: Exception | None = None):  # type: ignore[no-untyped-def]  # a hook of the stand-in
    async def note(request: object) -> None:
        current().usage.merge(Usage(embedding_tokens=tokens))
        if error is not None:
            raise error

    return note
