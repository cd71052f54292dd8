"""What rides along with calls between services, and what comes back."""

import asyncio
import time
from collections.abc import AsyncIterator

import grpc
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support.grpc import Deployment, MemoryStandIn, MemoryUnderTest, Service, bearer

from loom.identity.v1 import directory_pb2, directory_pb2_grpc
from loom.memory.v1 import memory_pb2 as pb
from loom.memory.v1 import memory_pb2_grpc as pb_grpc
from loom_common.attribution import Attribution
from loom_common.call import Call, bind, current
from loom_common.errors import (
    BackendUnavailable,
    Conflict,
    DeadlineExceeded,
    InvalidArgument,
    PayloadTooLarge,
    Unauthenticated,
    UnknownOp,
)
from loom_common.usage import Usage

GET = pb.GetMemoryRequest(key="k")


@pytest.fixture
async def stub(memory: MemoryUnderTest) -> "AsyncIterator[pb_grpc.MemoryServiceAsyncStub]":
    async with memory.deployment.channel(memory.server.address, "insights") as channel:
        yield pb_grpc.MemoryServiceStub(channel)


def call(memory: MemoryUnderTest, **more: object) -> Call:
    return Call(request_id="r-1", token=memory.deployment.token(), **more)  # type: ignore[arg-type]  # any field


async def test_the_running_calls_identity_rides_along(
    memory: MemoryUnderTest, stub: "pb_grpc.MemoryServiceAsyncStub"
) -> None:
    attribution = Attribution(org="acme", namespace="default", feature="search.query")
    running = call(memory, run_id="run", attribution=attribution)
    with bind(running):
        await stub.GetMemory(GET)
    seen = memory.servicer.calls[0]
    assert (seen.token, seen.run_id, seen.attribution, seen.request_id, seen.peer_service) == (
        running.token,
        "run",
        attribution,
        "r-1",
        "insights",
    )


async def test_metadata_that_a_call_states_wins(
    memory: MemoryUnderTest, stub: "pb_grpc.MemoryServiceAsyncStub"
) -> None:
    other = memory.deployment.token(subject="sa:other")
    with bind(call(memory)):
        await stub.GetMemory(GET, metadata=bearer(other))
    claims = memory.servicer.calls[0].claims
    assert claims is not None
    assert claims.sub == "sa:other"


async def test_without_a_service_key_nothing_but_the_token_rides_along(memory: MemoryUnderTest) -> None:
    running = call(memory, attribution=Attribution(org="umbrella"))
    async with memory.deployment.channel(memory.server.address) as channel:
        with bind(running):
            await pb_grpc.MemoryServiceStub(channel).GetMemory(GET)
    seen = memory.servicer.calls[0]
    assert (seen.peer_service, seen.token) == (None, running.token)
    assert seen.request_id != "r-1"


async def test_errors_come_back_as_loom_errors(memory: MemoryUnderTest, stub: "pb_grpc.MemoryServiceAsyncStub") -> None:
    with pytest.raises(Unauthenticated), bind(Call()):
        async with memory.deployment.channel(memory.server.address) as channel:
            await pb_grpc.MemoryServiceStub(channel).GetMemory(GET)
    with bind(call(memory)):
        memory.servicer.error = Conflict("Version 3 was expected.", detail={"expected": 3})
        with pytest.raises(Conflict) as conflict:
            await stub.GetMemory(GET)
        assert conflict.value.detail == {"expected": 3}
        with pytest.raises(InvalidArgument) as invalid:
            await stub.GetMemory(pb.GetMemoryRequest())
        assert [one.field for one in invalid.value.fields] == ["key"]


async def test_a_message_over_the_limit_comes_back_as_too_large(
    memory: MemoryUnderTest, stub: "pb_grpc.MemoryServiceAsyncStub"
) -> None:
    big = pb.SetMemoryRequest(key="k", value="x" * (8 * 1024 * 1024 + 1))
    with pytest.raises(PayloadTooLarge), bind(call(memory)):
        await stub.SetMemory(big)


async def test_an_operation_that_the_peer_does_not_have_is_unknown(memory: MemoryUnderTest) -> None:
    async with memory.deployment.channel(memory.server.address, "gateway") as channel:
        with pytest.raises(UnknownOp):
            await directory_pb2_grpc.DirectoryServiceStub(channel).GetNamespaceInfo(
                directory_pb2.GetNamespaceInfoRequest(org="a", namespace="b")
            )


async def test_a_peer_that_is_away_is_unavailable_and_found_again(deployment: Deployment) -> None:
    servicer = MemoryStandIn()
    async with deployment.serving(servicer.service) as server:
        address = server.address
    async with deployment.channel(address, "gateway") as channel:
        stub = pb_grpc.MemoryServiceStub(channel)
        with bind(Call(token=deployment.token())):
            with pytest.raises(BackendUnavailable):
                await stub.GetMemory(GET)
            async with deployment.serving(servicer.service, listen=address):
                await stub.GetMemory(GET, wait_for_ready=True, timeout=10)


async def test_usage_of_the_peer_is_added_to_the_running_calls(
    memory: MemoryUnderTest, stub: "pb_grpc.MemoryServiceAsyncStub"
) -> None:
    async def spend(request: object) -> None:
        current().usage.merge(Usage(embedding_tokens=5))

    memory.servicer._note = spend  # type: ignore[method-assign]  # the stand-in's own hook
    running = call(memory, usage=Usage(embedding_tokens=1))
    with bind(running):
        await asyncio.gather(stub.GetMemory(GET), stub.GetMemory(GET))
    assert running.usage.embedding_tokens == 11


async def test_a_call_gets_what_is_left_of_its_callers_time(
    memory: MemoryUnderTest, stub: "pb_grpc.MemoryServiceAsyncStub"
) -> None:
    with bind(call(memory, deadline=time.monotonic() + 5)):
        await stub.GetMemory(GET)
        await stub.GetMemory(GET, timeout=2)
        await stub.GetMemory(GET, timeout=60)
    left = [seen.deadline - time.monotonic() for seen in memory.servicer.calls if seen.deadline is not None]
    assert [round(one) for one in left] == [5, 2, 5]


async def test_a_call_without_a_deadline_gets_the_channels(memory: MemoryUnderTest) -> None:
    async with memory.deployment.channel(memory.server.address, "gateway", deadline_s=7) as channel:
        with bind(call(memory)):
            await pb_grpc.MemoryServiceStub(channel).GetMemory(GET)
    deadline = memory.servicer.calls[0].deadline
    assert deadline is not None
    # Not the 20 s of a channel that was given none; gRPC rounds a timeout up on its way.
    assert 5 < deadline - time.monotonic() < 8


async def test_a_callers_time_that_ran_out_is_not_spent_on_a_call(
    memory: MemoryUnderTest, stub: "pb_grpc.MemoryServiceAsyncStub"
) -> None:
    with bind(call(memory, deadline=time.monotonic() - 1)), pytest.raises(DeadlineExceeded):
        await stub.GetMemory(GET)
    assert memory.servicer.calls == []


async def test_leaving_a_call_ends_it_at_the_peer(
    memory: MemoryUnderTest, stub: "pb_grpc.MemoryServiceAsyncStub"
) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait(request: object) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    memory.servicer._note = wait  # type: ignore[method-assign]  # the stand-in's own hook

    async def caller() -> None:
        with bind(call(memory)):
            await stub.GetMemory(GET)

    task = asyncio.create_task(caller())
    async with asyncio.timeout(5):
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await ended.wait()


class Changes(directory_pb2_grpc.DirectoryServiceServicer):
    """Streams two messages, then what it is told."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.forever = False
        self.ended = asyncio.Event()

    async def WatchRevocations(
        self, request: object, context: object
    ) -> AsyncIterator[directory_pb2.WatchRevocationsResponse]:
        try:
            yield directory_pb2.WatchRevocationsResponse(snapshot=True)
            current().usage.merge(Usage(llm_calls=1))
            yield directory_pb2.WatchRevocationsResponse(jwks="x")
            if self.error is not None:
                raise self.error
            if self.forever:
                await asyncio.Event().wait()
        finally:
            self.ended.set()

    async def GetNamespaceInfo(self, request: object, context: object) -> object:
        return directory_pb2.GetNamespaceInfoResponse()

    async def ListCallerNamespaces(self, request: object, context: object) -> object:
        return directory_pb2.ListCallerNamespacesResponse()

    @property
    def service(self) -> Service:
        return Service(
            directory_pb2_grpc.add_DirectoryServiceServicer_to_server, self, "loom.identity.v1.DirectoryService"
        )


@pytest.fixture
async def changes(
    deployment: Deployment,
) -> "AsyncIterator[tuple[Changes, directory_pb2_grpc.DirectoryServiceAsyncStub]]":
    servicer = Changes()
    async with (
        deployment.serving(servicer.service, name="identity") as server,
        deployment.channel(server.address, "memory") as channel,
    ):
        yield servicer, directory_pb2_grpc.DirectoryServiceStub(channel)


async def test_a_stream_comes_whole_and_brings_its_usage(
    changes: "tuple[Changes, directory_pb2_grpc.DirectoryServiceAsyncStub]",
) -> None:
    _, stub = changes
    with bind(Call()) as running:
        messages = [message async for message in stub.WatchRevocations(directory_pb2.WatchRevocationsRequest())]
    assert [message.jwks for message in messages] == ["", "x"]
    assert running.usage.llm_calls == 1


async def test_a_stream_that_fails_midway_raises_its_error_after_its_messages(
    changes: "tuple[Changes, directory_pb2_grpc.DirectoryServiceAsyncStub]",
) -> None:
    servicer, stub = changes
    servicer.error = Conflict("Midway.")
    with bind(Call()) as running:
        stream = aiter(stub.WatchRevocations(directory_pb2.WatchRevocationsRequest()))
        assert [(await anext(stream)).jwks for _ in range(2)] == ["", "x"]
        with pytest.raises(Conflict):
            await anext(stream)
    assert running.usage.llm_calls == 1


async def test_a_stream_that_its_caller_has_no_time_for_leaves_its_span_too(
    changes: "tuple[Changes, directory_pb2_grpc.DirectoryServiceAsyncStub]", monkeypatch: pytest.MonkeyPatch
) -> None:
    _, stub = changes
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("loom_common.outgoing._tracer", provider.get_tracer("test"))
    with bind(Call(deadline=time.monotonic())), pytest.raises(DeadlineExceeded):
        async for _ in stub.WatchRevocations(directory_pb2.WatchRevocationsRequest()):
            pass
    (span,) = exporter.get_finished_spans()
    assert span.name.endswith("/WatchRevocations")


async def test_a_stream_that_is_left_ends_at_the_peer(
    changes: "tuple[Changes, directory_pb2_grpc.DirectoryServiceAsyncStub]",
) -> None:
    servicer, stub = changes
    servicer.forever = True
    stream = stub.WatchRevocations(directory_pb2.WatchRevocationsRequest())
    async with asyncio.timeout(5):
        async for message in stream:
            if message.jwks:
                break
        stream.cancel()
        await servicer.ended.wait()


async def test_a_stream_takes_a_service_credential(deployment: Deployment) -> None:
    async with (
        deployment.serving(Changes().service, name="identity") as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        stub = directory_pb2_grpc.DirectoryServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in stub.WatchRevocations(
                directory_pb2.WatchRevocationsRequest(), metadata=bearer(deployment.token())
            ):
                pass
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
