"""The embedding service over a remote provider, on a real server: each failure as its callers see it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from support.grpc import Deployment
from support.providers import TEST_KEY, Fault, ProviderStandIn, Received, Reply, embedding_of, texts_of

from loom.common.v1 import status_pb2, status_pb2_grpc
from loom.embedding.v1 import embedding_pb2 as pb
from loom.embedding.v1 import embedding_pb2_grpc as pb_grpc
from loom_common.attribution import Attribution
from loom_common.call import Call, bind
from loom_common.errors import EmbedTimeout, ProviderFailed
from loom_common.server import Service
from loom_embedding.domain.vectors import unit_vector
from loom_embedding.settings import EmbeddingSettings
from loom_embedding.wiring import FULL_NAME, build_servicer, build_status, open_model


@dataclass(slots=True)
class Remote:
    stub: "pb_grpc.EmbeddingServiceAsyncStub"
    status: "status_pb2_grpc.StatusServiceAsyncStub"
    provider: ProviderStandIn

    async def problems(self) -> list[str]:
        report = await self.status.GetStatus(status_pb2.GetStatusRequest())
        return [problem.code for problem in report.problems]


@pytest.fixture
async def remote(deployment: Deployment, tmp_path: Path) -> AsyncIterator[Remote]:
    async with ProviderStandIn().running() as provider:
        settings = EmbeddingSettings(
            LOOM_DATA_DIR=tmp_path,
            LOOM_EMBEDDING_MODEL="text-embedding-3-small",
            LOOM_EMBEDDING_DIM=16,
            OPENAI_API_KEY=TEST_KEY,
            LOOM_OPENAI_BASE_URL=provider.openai_url,
        )
        async with open_model(settings) as model:
            servicer = build_servicer(model, settings)
            service = Service(pb_grpc.add_EmbeddingServiceServicer_to_server, servicer, FULL_NAME)
            status = build_status(model, settings)
            async with (
                deployment.serving(service, name="embedding", status=status) as server,
                deployment.channel(server.address, "memory") as channel,
            ):
                yield Remote(
                    pb_grpc.EmbeddingServiceStub(channel), status_pb2_grpc.StatusServiceStub(channel), provider
                )


async def test_vectors_usage_and_failures_come_through_as_they_must(remote: Remote) -> None:
    with bind(Call(attribution=Attribution(org="acme"))) as call:
        query = await remote.stub.EmbedQuery(pb.EmbedQueryRequest(text="  dark \n mode "))
    assert np.allclose(query.vector, unit_vector(embedding_of("dark mode", 16), 16), atol=1e-6)
    assert (call.usage.embedding_tokens, call.usage.model) == (3, "text-embedding-3-small")
    assert call.usage.upstream_cost_usd == pytest.approx(3 / 1000 * 0.00002)

    def refuse(request: Received) -> Reply | None:
        return Reply.error(400, "no") if "bad" in texts_of(request) else None

    remote.provider.rule = refuse
    stored = await remote.stub.EmbedMany(pb.EmbedManyRequest(texts=["one", "bad", "long " * 9000]))
    assert [result.error for result in stored.results] == ["", "PROVIDER_FAILED", ""]
    assert [len(result.chunks) for result in stored.results] == [1, 0, 2]
    assert await remote.problems() == []

    remote.provider.script(Reply.error(401), Reply.error(401))
    with pytest.raises(ProviderFailed) as caught:
        await remote.stub.EmbedMany(pb.EmbedManyRequest(texts=["one"]))
    assert caught.value.detail["status"] in {401, "401"}
    assert TEST_KEY not in str(caught.value)
    assert await remote.problems() == ["provider_failing:openai"]


async def test_a_provider_that_hangs_is_an_embed_timeout_of_a_query(remote: Remote) -> None:
    remote.provider.script(Reply(fault=Fault.HANG), Reply(fault=Fault.HANG))
    with pytest.raises(EmbedTimeout):
        await remote.stub.EmbedQuery(pb.EmbedQueryRequest(text="dark mode", bound_ms=100, retries=1))
    assert await remote.problems() == []
