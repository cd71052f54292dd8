from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest

from loom.embedding.v1 import embedding_pb2 as pb
from loom.embedding.v1 import embedding_pb2_grpc as pb_grpc
from loom_common.channel import open_channel
from loom_common.errors import BackendUnavailable, EmbedTimeout, LoomError, ModelCallDeferred
from loom_memory.app.embedding_grpc import GrpcEmbedding, QueryBound


class Embedder(pb_grpc.EmbeddingServiceServicer):
    """Answers with vectors that say which text they are of."""

    def __init__(self) -> None:
        self.model = "m1"
        self.queries: list[pb.EmbedQueryRequest] = []
        self.calls: list[int] = []
        self.hangs = False
        self.refused_from: int | None = None

    async def GetServedModel(self, request: pb.GetServedModelRequest, context: Any) -> pb.GetServedModelResponse:
        return pb.GetServedModelResponse(model=self.model, dim=2, noise_floor=0.2)

    async def EmbedQuery(self, request: pb.EmbedQueryRequest, context: Any) -> pb.EmbedQueryResponse:
        self.queries.append(request)
        if self.hangs:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "late")
        return pb.EmbedQueryResponse(vector=[1, 0], model=self.model)

    async def EmbedMany(self, request: pb.EmbedManyRequest, context: Any) -> pb.EmbedManyResponse:
        if len(self.calls) == self.refused_from:
            await ModelCallDeferred("wait", retry_after_s=7).abort(context)
        self.calls.append(len(request.texts))
        results = [
            pb.EmbeddedText(error="INVALID_ARGUMENT")
            if text == "bad"
            else pb.EmbeddedText(chunks=[pb.EmbeddedChunk(end_offset=len(text), vector=[0, len(text)])])
            for text in request.texts
        ]
        return pb.EmbedManyResponse(results=results, model=self.model, dim=2)


@pytest.fixture
async def embedder() -> AsyncIterator[tuple[Embedder, GrpcEmbedding]]:
    servicer = Embedder()
    server = grpc.aio.server()
    pb_grpc.add_EmbeddingServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = open_channel(f"127.0.0.1:{port}")
    yield servicer, GrpcEmbedding(channel, QueryBound(bound_s=0.5, retries=2))
    await channel.close()
    await server.stop(0)


async def test_the_served_model_is_read_once(embedder: tuple[Embedder, GrpcEmbedding]) -> None:
    servicer, port = embedder
    served = await port.served_model()
    assert (served.name, served.dim, served.noise_floor) == ("m1", 2, 0.2)
    servicer.model = "m2"
    assert (await port.served_model()).name == "m1"


async def test_a_query_carries_its_bound(embedder: tuple[Embedder, GrpcEmbedding]) -> None:
    servicer, port = embedder
    assert list(await port.embed_query("q")) == [1, 0]
    assert (servicer.queries[0].bound_ms, servicer.queries[0].retries) == (500, 2)


async def test_a_query_beyond_its_bound_is_an_embed_timeout(embedder: tuple[Embedder, GrpcEmbedding]) -> None:
    servicer, port = embedder
    servicer.hangs = True
    with pytest.raises(EmbedTimeout):
        await port.embed_query("q")


async def test_an_embedding_service_that_is_away_is_backend_unavailable() -> None:
    channel = open_channel("127.0.0.1:1")
    with pytest.raises(BackendUnavailable):
        await GrpcEmbedding(channel, QueryBound(0.5, 0)).embed_query("q")
    await channel.close()


async def test_texts_keep_their_order_over_several_calls_and_one_may_fail(
    embedder: tuple[Embedder, GrpcEmbedding],
) -> None:
    servicer, port = embedder
    texts = ["x" * 60_000, "bad", *("y" * length for length in range(1, 600)), "z" * 500_000]
    found = await port.embed_many(texts)
    assert len(servicer.calls) > 1
    assert sum(servicer.calls) == len(texts)
    assert isinstance(found[1], LoomError)
    lengths = [chunks[0].end_offset for chunks in found if isinstance(chunks, list)]
    assert lengths == [len(text) for text in texts if text != "bad"]


async def test_another_model_in_an_answer_is_noticed(embedder: tuple[Embedder, GrpcEmbedding]) -> None:
    servicer, port = embedder
    await port.served_model()
    servicer.model = "m2"
    with pytest.raises(BackendUnavailable):
        await port.embed_query("q")
    assert (await port.served_model()).name == "m2"


async def test_vectors_that_were_bought_before_a_refusal_are_kept(embedder: tuple[Embedder, GrpcEmbedding]) -> None:
    servicer, port = embedder
    servicer.refused_from = 1
    found = await port.embed_many(["x" * 400_000, "y" * 400_000, "z"])
    assert not isinstance(found[0], LoomError)
    assert [each.retry_after_s for each in found[1:] if isinstance(each, ModelCallDeferred)] == [7, 7]
    servicer.refused_from = len(servicer.calls)
    with pytest.raises(ModelCallDeferred):
        await port.embed_many(["x"])
