"""The embedding service on a real server: its RPCs, who may call them, what it says of itself."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
import numpy as np
import pytest
from support.grpc import Deployment, bad_request, reason_of

from loom.common.v1 import status_pb2, status_pb2_grpc
from loom.embedding.v1 import embedding_pb2 as pb
from loom.embedding.v1 import embedding_pb2_grpc as pb_grpc
from loom_common.attribution import Attribution
from loom_common.call import Call, bind
from loom_common.clickhouse import ClickHouse
from loom_common.errors import InvalidArgument
from loom_common.server import Service
from loom_common.settings import SettingsError
from loom_embedding.settings import EmbeddingSettings
from loom_embedding.wiring import FULL_NAME, build_servicer, build_status, open_model, open_service

VIEW = "prefix:16:fake-ngram-64"


@dataclass(slots=True)
class Running:
    deployment: Deployment
    address: str
    stub: "pb_grpc.EmbeddingServiceAsyncStub"
    raw: grpc.aio.Channel

    @property
    def raw_stub(self) -> "pb_grpc.EmbeddingServiceAsyncStub":
        return pb_grpc.EmbeddingServiceStub(self.raw)

    @property
    def credential(self) -> tuple[tuple[str, str], ...]:
        return (self.deployment.credential("memory"),)


async def serve(deployment: Deployment, settings: EmbeddingSettings) -> AsyncIterator[Running]:
    async with open_model(settings) as model:
        service = Service(pb_grpc.add_EmbeddingServiceServicer_to_server, build_servicer(model, settings), FULL_NAME)
        status = build_status(model, settings)
        async with (
            deployment.serving(service, name="embedding", status=status) as server,
            deployment.channel(server.address, "memory") as channel,
            grpc.aio.insecure_channel(server.address) as raw,
        ):
            yield Running(deployment, server.address, pb_grpc.EmbeddingServiceStub(channel), raw)


@pytest.fixture
async def local(deployment: Deployment, tmp_path: Path) -> AsyncIterator[Running]:
    """The service with its default model."""
    async for running in serve(deployment, EmbeddingSettings(LOOM_DATA_DIR=tmp_path)):
        yield running


@pytest.fixture
async def fake(deployment: Deployment, tmp_path: Path) -> AsyncIterator[Running]:
    """The service with a fake and an expected width that it does not have."""
    settings = EmbeddingSettings(
        LOOM_DATA_DIR=tmp_path,
        LOOM_EMBEDDING_MODEL="fake-ngram-64",
        LOOM_EMBEDDING_DIM=3072,
        LOOM_CODE_SEARCH_VECTOR_MODELS=(VIEW,),
    )
    async for running in serve(deployment, settings):
        yield running


async def test_a_query_and_a_stored_paraphrase_are_near_and_an_unrelated_text_is_not(local: Running) -> None:
    query = await local.stub.EmbedQuery(pb.EmbedQueryRequest(text="which theme does she like?"))
    stored = await local.stub.EmbedMany(
        pb.EmbedManyRequest(texts=["She likes the dark theme best.", "The invoice of March was paid late."])
    )
    assert (query.model, stored.model, stored.dim) == ("local:minilm", "local:minilm", 384)
    near, far = (np.dot(query.vector, result.chunks[0].vector) for result in stored.results)
    served = await local.stub.GetServedModel(pb.GetServedModelRequest())
    assert near > 0.5
    assert far < served.noise_floor


async def test_a_long_text_comes_back_in_chunks_that_cover_it(local: Running) -> None:
    text = "The lighthouse keeper wrote one line in his book every evening. " * 60
    response = await local.stub.EmbedMany(pb.EmbedManyRequest(texts=[text, " ", ""]))
    long, space, empty = response.results
    assert len(long.chunks) > 2
    assert long.chunks[0].start_offset == 0
    assert long.chunks[-1].end_offset == len(text)
    for before, after in zip(long.chunks, long.chunks[1:], strict=False):
        assert before.start_offset < after.start_offset <= before.end_offset < after.end_offset
    assert [len(result.chunks) for result in (space, empty)] == [1, 1]
    assert all(np.linalg.norm(chunk.vector) == pytest.approx(1.0, abs=1e-5) for chunk in long.chunks)


async def test_a_view_that_is_listed_is_embedded_with_by_its_label_and_no_other_is(fake: Running) -> None:
    query = await fake.stub.EmbedQuery(pb.EmbedQueryRequest(text="dark mode", view=VIEW))
    whole = await fake.stub.EmbedQuery(pb.EmbedQueryRequest(text="dark mode"))
    stored = await fake.stub.EmbedMany(pb.EmbedManyRequest(texts=["dark mode"], view=VIEW))
    assert (query.model, stored.model, stored.dim, whole.model) == (VIEW, VIEW, 16, "fake-ngram-64")
    cut = np.array(whole.vector[:16])
    assert query.vector == pytest.approx(cut / np.linalg.norm(cut), abs=1e-6)
    assert list(stored.results[0].chunks[0].vector) == pytest.approx(list(query.vector))
    with pytest.raises(InvalidArgument, match="view"):
        await fake.stub.EmbedQuery(pb.EmbedQueryRequest(text="dark mode", view="prefix:8:fake-ngram-64"))


async def test_the_served_model_is_described(local: Running) -> None:
    served = await local.stub.GetServedModel(pb.GetServedModelRequest())
    assert (served.model, served.dim, served.provider, served.fake) == ("local:minilm", 384, "local", False)
    assert (served.window_tokens, served.noise_floor) == (256, 0.20)


async def test_the_tokens_that_were_embedded_come_back_to_the_caller(local: Running) -> None:
    with bind(Call(attribution=Attribution(org="acme"))) as call:
        await local.stub.EmbedQuery(pb.EmbedQueryRequest(text="dark mode"))
        first = call.usage.embedding_tokens
        await local.stub.EmbedQuery(pb.EmbedQueryRequest(text=" dark  mode "))
    assert first == 4  # two words and the model's two special tokens
    assert call.usage.embedding_tokens == first  # the second came from the cache
    assert call.usage.model == "local:minilm"


async def test_queries_are_answered_while_a_large_batch_is_embedded(local: Running) -> None:
    texts = [f"Sentence number {number} about the weather in town." for number in range(400)]
    batch = asyncio.ensure_future(local.stub.EmbedMany(pb.EmbedManyRequest(texts=texts)))
    for number in range(5):
        await local.stub.EmbedQuery(pb.EmbedQueryRequest(text=f"query {number}"))
    assert not batch.done()
    assert len((await batch).results) == 400


async def test_the_bound_of_a_query_is_kept(local: Running) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await local.raw_stub.EmbedQuery(
            pb.EmbedQueryRequest(text="word " * 1500, bound_ms=1, retries=0), metadata=local.credential
        )
    assert reason_of(caught.value) == "EMBED_TIMEOUT"


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pb.EmbedQueryRequest(), "text"),
        (pb.EmbedQueryRequest(text=" \n "), "text"),
        (pb.EmbedQueryRequest(text="x" * 8193), "text"),
        (pb.EmbedQueryRequest(text="x", bound_ms=0), "bound_ms"),
        (pb.EmbedQueryRequest(text="x", retries=6), "retries"),
    ],
)
async def test_a_query_that_breaks_a_rule_names_the_field(
    fake: Running, request_: pb.EmbedQueryRequest, field: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await fake.raw_stub.EmbedQuery(request_, metadata=fake.credential)
    assert reason_of(caught.value) == "INVALID_ARGUMENT"
    assert [violation.field for violation in bad_request(caught.value).field_violations] == [field]


@pytest.mark.parametrize("texts", [[], ["x"] * 2049, ["x" * 131_073]])
async def test_texts_that_break_a_rule_are_refused(fake: Running, texts: list[str]) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await fake.raw_stub.EmbedMany(pb.EmbedManyRequest(texts=texts), metadata=fake.credential)
    assert reason_of(caught.value) == "INVALID_ARGUMENT"


async def test_nobody_but_a_service_may_embed(fake: Running) -> None:
    token = fake.deployment.token("default:admin")
    for metadata in ((), (("authorization", f"Bearer {token}"),), (("x-loom-service", "forged"),)):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await fake.raw_stub.EmbedQuery(pb.EmbedQueryRequest(text="x"), metadata=metadata)
        assert caught.value.code() in {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}


async def test_a_fake_and_a_wrong_width_show_as_problems(fake: Running) -> None:
    status = await status_pb2_grpc.StatusServiceStub(fake.raw).GetStatus(
        status_pb2.GetStatusRequest(), metadata=fake.credential
    )
    assert [problem.code for problem in status.problems] == ["embedding_dim_mismatch", "fake_embedder"]
    assert dict(status.facts) == {"model": "fake-ngram-64", "dim": "64", "provider": "fake"}
    assert status.ready


async def test_the_default_model_has_no_problems(local: Running) -> None:
    status = await status_pb2_grpc.StatusServiceStub(local.raw).GetStatus(
        status_pb2.GetStatusRequest(), metadata=local.credential
    )
    assert list(status.problems) == []
    assert status.facts["model"] == "local:minilm"


async def test_the_whole_service_opens_answers_and_stops_while_identity_is_away(
    deployment: Deployment, tmp_path: Path, clickhouse: ClickHouse
) -> None:
    settings = EmbeddingSettings(
        LOOM_DATA_DIR=tmp_path,
        LOOM_SERVICE_KEY=deployment.keys / "embedding.jwk",
        LOOM_SERVICE_JWKS=deployment.keys / "services.jwks",
        LOOM_EMBEDDING_LISTEN="127.0.0.1:0",
        LOOM_IDENTITY_ADDR="127.0.0.1:1",
    )
    async with (
        open_service(settings, clickhouse) as server,
        deployment.channel(server.address, "memory") as channel,
    ):
        response = await pb_grpc.EmbeddingServiceStub(channel).EmbedQuery(pb.EmbedQueryRequest(text="hello world"))
        assert len(response.vector) == 384
        assert not server.ready


@pytest.mark.parametrize(
    ("variables", "word"),
    [
        ({"LOOM_EMBEDDING_PROVIDER": "voyage"}, "openai"),
        ({"LOOM_EMBEDDING_MODEL": "local"}, "--download local:bge-small"),
        ({"LOOM_EMBEDDING_MODEL": "word2vec"}, "unknown embedding model"),
    ],
)
async def test_a_model_that_cannot_be_served_stops_the_start_in_one_line(
    variables: dict[str, str], word: str, tmp_path: Path
) -> None:
    settings = EmbeddingSettings(**{"LOOM_EMBEDDING_MODEL_DIR": tmp_path, **variables})
    with pytest.raises(SettingsError) as caught:
        async with open_model(settings):
            pass
    assert word in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_files_that_are_no_model_stop_the_start_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "local-bge-small"
    folder.mkdir()
    for name in ("model.onnx", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_text("{}")
    config = {"model_type": "bert", "hidden_size": 384, "num_hidden_layers": 12, "vocab_size": 30522}
    (folder / "config.json").write_text(json.dumps(config))
    settings = EmbeddingSettings(LOOM_EMBEDDING_MODEL_DIR=tmp_path, LOOM_EMBEDDING_MODEL="local:bge-small")
    with pytest.raises(SettingsError, match="cannot be loaded"):
        async with open_model(settings):
            pass
