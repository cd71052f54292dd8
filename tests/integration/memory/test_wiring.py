import asyncio
from datetime import datetime
from pathlib import Path

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from support.memory import MemoryHarness, memory_over

from loom.memory.v1 import memory_pb2 as pb
from loom.memory.v1 import memory_pb2_grpc as pb_grpc
from loom_common.clickhouse import ClickHouse
from loom_common.clock import SystemClock
from loom_common.errors import BackendUnavailable
from loom_memory.app.embedding_fake import FakeEmbedding
from loom_memory.app.status import MemoryStatus
from loom_memory.settings import MemorySettings
from loom_memory.wiring import open_service


async def test_the_service_starts_before_its_peers_and_is_not_ready(clickhouse: ClickHouse, service_keys: Path) -> None:
    given = {
        "LOOM_SERVICE_KEY": str(service_keys / "memory.jwk"),
        "LOOM_SERVICE_JWKS": str(service_keys / "services.jwks"),
        "LOOM_MEMORY_LISTEN": "127.0.0.1:0",
        "LOOM_EMBEDDING_ADDR": "127.0.0.1:1",
        "LOOM_IDENTITY_ADDR": "127.0.0.1:1",
        "LOOM_INSIGHTS_ADDR": "127.0.0.1:1",
        "LOOM_DRAIN_S": "0",
    }
    settings = MemorySettings.load(given, environ={})
    async with open_service(settings, clickhouse) as server, grpc.aio.insecure_channel(server.address) as channel:
        health = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert health.status == health_pb2.HealthCheckResponse.NOT_SERVING
        with pytest.raises(grpc.aio.AioRpcError):
            await pb_grpc.MemoryServiceStub(channel).GetMemory(pb.GetMemoryRequest(key="k"))


async def test_it_is_ready_while_embedding_that_told_its_model_answers(clickhouse: ClickHouse) -> None:
    embedding = FakeEmbedding()
    embedding.failure = BackendUnavailable("starting")
    status = MemoryStatus(clickhouse, embedding, lambda: ())
    learning = asyncio.create_task(status.learn_model())
    report = await status.report()
    assert not report.ready
    assert [problem.code for problem in report.problems] == ["embedding_unreachable"]
    embedding.failure = None
    async with asyncio.timeout(10):
        await learning
    report = await status.report()
    assert report.ready
    assert report.facts["embedding_model"] == "fake"
    embedding.failure = BackendUnavailable("gone again")
    report = await status.report()
    assert not report.ready
    assert [problem.code for problem in report.problems] == ["embedding_unreachable"]


async def test_a_process_that_lost_a_worker_is_not_ready_until_it_is_replaced(clickhouse: ClickHouse) -> None:
    harness = await memory_over(clickhouse)
    workers = harness.parts.workers
    status = MemoryStatus(clickhouse, harness.embedding, lambda: workers.ended)
    await status.learn_model()
    await asyncio.wait({workers.start("sweep", _fail())})
    report = await status.report()
    assert not report.ready
    assert [(problem.code, problem.severity) for problem in report.problems] == [("worker_ended", "error")]
    workers.start("sweep", status.learn_model())
    assert (await status.report()).ready
    await workers.close()


async def _fail() -> None:
    raise LookupError


async def test_a_marker_of_deletions_that_ends_by_a_fault_is_noticed(
    memory: MemoryHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: SystemClock) -> datetime:
        raise LookupError

    await memory.set("k", "v")
    await memory.delete("k")
    monkeypatch.setattr(SystemClock, "now", fail)
    marking = memory.parts.deletions._task
    assert marking is not None
    async with asyncio.timeout(10):
        await asyncio.wait({marking})
    assert memory.parts.workers.ended == ("deletions",)
