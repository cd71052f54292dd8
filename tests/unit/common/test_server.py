"""A server's life: bind, ready, drain."""

import asyncio
import socket

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from support.grpc import Deployment, MemoryStandIn, MemoryUnderTest, bearer

from loom.common.v1 import status_pb2, status_pb2_grpc
from loom.memory.v1 import memory_pb2 as pb
from loom.memory.v1 import memory_pb2_grpc as pb_grpc
from loom_common.server import ListenError, ServerDeps
from loom_common.status import FixedStatus, Problem, StatusReport

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def health_of(address: str, name: str = "") -> int:
    async with grpc.aio.insecure_channel(address) as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=name))
        return int(answer.status)


async def until_refused(stub: "health_pb2_grpc.HealthStub") -> None:
    while True:
        await stub.Check(health_pb2.HealthCheckRequest(), timeout=1)


async def test_health_says_serving_for_the_server_and_each_service(memory: MemoryUnderTest) -> None:
    assert await memory.server.wait_ready(5)
    for name in ("", "loom.memory.v1.MemoryService"):
        assert await health_of(memory.server.address, name) == SERVING
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await health_of(memory.server.address, "loom.llm.v1.LlmService")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_health_can_be_watched(memory: MemoryUnderTest) -> None:
    await memory.server.wait_ready(5)
    watch = health_pb2_grpc.HealthStub(memory.raw).Watch(health_pb2.HealthCheckRequest())
    async with asyncio.timeout(5):
        assert (await anext(aiter(watch))).status == SERVING
    watch.cancel()


async def test_health_follows_the_services_own_status(deployment: Deployment) -> None:
    problem = Problem("fake_embedder", "Answers mean nothing.", "error")
    status = FixedStatus(StatusReport(ready=False, problems=[problem], facts={"model": "m"}))
    async with deployment.serving(MemoryStandIn().service, status=status) as server:
        assert not await server.wait_ready(0.3)
        assert await health_of(server.address) == NOT_SERVING
        async with grpc.aio.insecure_channel(server.address) as channel:
            stub = status_pb2_grpc.StatusServiceStub(channel)
            answer = await stub.GetStatus(status_pb2.GetStatusRequest(), metadata=bearer(deployment.token()))
        assert (answer.ready, answer.problems[0].code, answer.facts["model"]) == (False, "fake_embedder", "m")
        status.current = StatusReport(ready=True)
        assert await server.wait_ready(5)
        assert await health_of(server.address) == SERVING


async def test_a_status_that_fails_is_not_ready(deployment: Deployment) -> None:
    class Broken:
        async def report(self) -> StatusReport:
            raise RuntimeError("secret")

    async with deployment.serving(MemoryStandIn().service, status=Broken()) as server:
        assert not await server.wait_ready(0.3)
        async with grpc.aio.insecure_channel(server.address) as channel:
            stub = status_pb2_grpc.StatusServiceStub(channel)
            answer = await stub.GetStatus(status_pb2.GetStatusRequest(), metadata=bearer(deployment.token()))
    assert [problem.code for problem in answer.problems] == ["status_failed"]
    assert "secret" not in str(answer)


async def test_a_server_that_cannot_verify_callers_is_not_ready(deployment: Deployment) -> None:
    deps = deployment.deps
    unread = ServerDeps(deps.verifier, deps.keyring, deps.directory, identity_ready=lambda: False)
    async with deployment.serving(MemoryStandIn().service, deps=unread) as server:
        assert not await server.wait_ready(0.3)


async def test_a_taken_port_is_one_clear_line(deployment: Deployment, capfd: pytest.CaptureFixture[str]) -> None:
    async with deployment.serving(MemoryStandIn().service) as server:
        capfd.readouterr()
        with pytest.raises(ListenError) as caught:
            async with deployment.serving(MemoryStandIn().service, listen=server.address):
                pass
    assert server.address in str(caught.value)
    assert "LOOM_MEMORY_LISTEN" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("listen", ["192.0.2.1:0", "127.0.0.1:99999", "nowhere.invalid:0"])
async def test_an_address_that_cannot_be_bound_is_one_clear_line(deployment: Deployment, listen: str) -> None:
    with pytest.raises(ListenError):
        async with deployment.serving(MemoryStandIn().service, listen=listen):
            pass


async def test_a_port_is_free_again_after_a_stop(deployment: Deployment) -> None:
    async with deployment.serving(MemoryStandIn().service) as server:
        address = server.address
    async with deployment.serving(MemoryStandIn().service, listen=address) as again:
        assert again.port == server.port
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", server.port)) != 0


async def test_a_stop_lets_running_calls_end_and_takes_no_new_ones(deployment: Deployment) -> None:
    servicer = MemoryStandIn()
    begun, release = asyncio.Event(), asyncio.Event()

    async def wait(request: object) -> None:
        begun.set()
        await release.wait()

    servicer._note = wait  # type: ignore[method-assign]  # the stand-in's own hook
    metadata = bearer(deployment.token())
    stopped = asyncio.Event()

    async with asyncio.timeout(20):
        context = deployment.serving(servicer.service, LOOM_DRAIN_S=10)
        server = await context.__aenter__()
        async with grpc.aio.insecure_channel(server.address) as channel:
            stub = pb_grpc.MemoryServiceStub(channel)
            running = asyncio.ensure_future(stub.GetMemory(pb.GetMemoryRequest(key="k"), metadata=metadata))
            await begun.wait()

            async def stop() -> None:
                await context.__aexit__(None, None, None)
                stopped.set()

            stopping = asyncio.create_task(stop())
            async with grpc.aio.insecure_channel(server.address) as other:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await until_refused(health_pb2_grpc.HealthStub(other))
            assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
            assert not stopped.is_set()
            release.set()
            assert (await running).found
            await stopping


async def test_a_stop_ends_calls_that_outlast_the_drain(deployment: Deployment) -> None:
    servicer = MemoryStandIn()
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait(request: object) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    servicer._note = wait  # type: ignore[method-assign]  # the stand-in's own hook
    async with asyncio.timeout(20):
        async with deployment.serving(servicer.service, LOOM_DRAIN_S=0.1) as server:
            channel = grpc.aio.insecure_channel(server.address)
            call = pb_grpc.MemoryServiceStub(channel).GetMemory(
                pb.GetMemoryRequest(key="k"), metadata=bearer(deployment.token())
            )
            running = asyncio.ensure_future(call)
            await begun.wait()
        with pytest.raises(grpc.aio.AioRpcError):
            await running
        await ended.wait()
        await channel.close()
