"""Searches over gRPC: what a request may say, what is recorded, and that no model is asked where reads go without."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
import pytest
import pytest_asyncio
from google.protobuf import json_format, message_factory
from support.faults import GOOD
from support.grpc import Deployment, bearer, reason_of
from support.memory import MemoryHarness, memory_over

from loom.memory.v1 import (
    exposures_pb2,
    exposures_pb2_grpc,
    memory_pb2_grpc,
    replay_pb2,
    replay_pb2_grpc,
    search_pb2,
    search_pb2_grpc,
)
from loom.memory.v1 import memory_pb2 as pb
from loom_common.clickhouse import ClickHouseSettings
from loom_common.clickhouse.embedded import EmbeddedClickHouse
from loom_common.clickhouse.engine import EmbeddedEngine
from loom_common.ops import OpRole, OpSpec, all_ops
from loom_memory.app.llm import Completion, ServedLlm
from loom_memory.app.llm_fake import FakeLlm
from loom_memory.domain.recipes import Recipe
from loom_memory.settings import MemorySettings

pytestmark = pytest.mark.asyncio(loop_scope="module")

READS = sorted(
    (op for op in all_ops().values() if op.owner == "memory" and op.read_only and op.role is not OpRole.INTERNAL),
    key=lambda op: op.name,
)


class ForbiddenLlm(FakeLlm):
    """Notes that it was asked, which it never may be."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    async def served(self) -> ServedLlm:
        return ServedLlm("openai", "model-1", False)

    async def complete(self, system: str, user: str, **more: object) -> Completion:  # type: ignore[override]  # refuses all
        self.calls.append("complete")
        return Completion("{}", model="model-1")

    async def rerank(self, query: str, texts: Sequence[str], *, endpoint: str, named: bool) -> list[float]:
        self.calls.append(f"rerank {endpoint} {named}")
        return [0.0] * len(texts)


@dataclass
class Served:
    deployment: Deployment
    harness: MemoryHarness
    channel: grpc.aio.Channel
    memories: "memory_pb2_grpc.MemoryServiceAsyncStub"
    llm: ForbiddenLlm

    @property
    def reader(self) -> tuple[tuple[str, str | bytes], ...]:
        return bearer(self.deployment.token("team:admin", "default:viewer"))

    async def search(self, query: str, **more: object) -> pb.SearchMemoriesResponse:
        request = pb.SearchMemoriesRequest(query=query, **more)  # type: ignore[arg-type]  # fields by name
        return await self.memories.SearchMemories(request, metadata=self.reader)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(clickhouse_engine: EmbeddedEngine, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    ch = EmbeddedClickHouse(clickhouse_engine, "search_service", ClickHouseSettings(pool_size=2))
    await ch.start()
    deployment = Deployment(Path(tmp_path_factory.mktemp("keys")))
    llm = ForbiddenLlm()
    settings = MemorySettings(LOOM_READS_LLM_FREE=True, LOOM_RETRIEVAL_JUDGE_SAMPLE_RATE=1.0)
    harness = await memory_over(ch, directory=deployment.directory, settings=settings, llm=llm)
    async with (
        deployment.serving(*harness.parts.services()) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        served = Served(deployment, harness, channel, memory_pb2_grpc.MemoryServiceStub(channel), llm)
        for number in range(8):
            await served.memories.SetMemory(
                pb.SetMemoryRequest(
                    key=f"k{number}",
                    value=f"violin lesson {number} in the house",
                    kind="fact",
                    event_time="2026-03-01",
                    verbatim=True,
                ),
                metadata=served.reader,
            )
        yield served
    await harness.parts.workers.close()
    await ch.command("DROP DATABASE search_service SYNC")
    await ch.close()


async def refusal(served: Served, op: OpSpec) -> str:
    """Calls an operation and returns why it was refused; empty where it was not."""
    request = json_format.ParseDict(dict(GOOD.get(op.name, {})), message_factory.GetMessageClass(op.request)())
    read = message_factory.GetMessageClass(op.response).FromString
    kind = served.channel.unary_stream if op.response_streaming else served.channel.unary_unary
    call = kind(op.method, type(request).SerializeToString, read)(request, metadata=served.reader)
    try:
        if op.response_streaming:
            async for _ in call:
                pass
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return reason_of(error)
    return ""


@pytest.mark.parametrize("op", READS, ids=lambda op: op.name)
async def test_no_read_asks_a_model_where_reads_go_without(served: Served, op: OpSpec) -> None:
    # What is a model's answer and nothing else is refused.
    assert await refusal(served, op) in {"", "READS_LLM_FREE", "NOT_FOUND"}
    await served.harness.parts.searches.judge.drain()
    assert served.llm.calls == []


@pytest.mark.parametrize("recipe", list(Recipe))
async def test_no_recipe_asks_one_either_but_a_reranker_that_is_named(served: Served, recipe: Recipe) -> None:
    embedded = served.harness.embedding.queries
    for more in ({}, {"hyde": True}, {"rerank": "builtin:openai"}):
        answer = await served.search("how many violin lessons", recipe=recipe.value, explain=True, **more)
        assert answer.hits
        assert served.llm.calls == []
    assert served.harness.embedding.queries - embedded == 3, "a search embeds its question and nothing else"
    await served.search("violin", recipe=recipe.value, rerank="builtin:cohere")
    assert served.llm.calls == ["rerank builtin:cohere True"]
    served.llm.calls.clear()


async def test_a_request_is_answered_as_it_asks(served: Served) -> None:
    answer = await served.search(
        "violin lesson", top_k=3, facets=True, paging=True, explain=True, render="reader", bodies="excerpt",
        weights=pb.SearchWeights(recency=0), happened_since="2026-02-01", quality_filter=True,
    )  # fmt: skip
    assert len(answer.hits) == 3
    assert answer.candidates_total == 8
    kinds = answer.facets[0]
    assert (kinds.name, kinds.value, kinds.matches_count) == ("kind", "fact", 8)
    assert answer.rendered.count("] (fact) violin lesson") == 3
    assert (answer.bodies_returned, answer.bodies_elided) == (3, 0)
    assert answer.tokens_returned > 0
    assert answer.explanation.recipe == "balanced"
    assert all("recency" not in [part.name for part in hit.components] for hit in answer.hits)
    following = await served.search("violin lesson", top_k=10, page=answer.next_page, bodies="none")
    assert len(following.hits) == 5
    assert following.next_page == ""
    assert following.bodies_elided == 5
    assert {hit.memory.key for hit in [*answer.hits, *following.hits]} == {f"k{number}" for number in range(8)}
    assert (await served.search("x", page=f"{'0' * 32}.1")).abstain_code == "page_expired"


async def test_a_page_of_the_search_over_everything_goes_on_too(served: Served) -> None:
    stub = search_pb2_grpc.SearchServiceStub(served.channel)
    first = await stub.Search(search_pb2.SearchRequest(query="violin lesson", top_k=5), metadata=served.reader)
    assert first.memory.rendered.startswith("What stands between")
    request = search_pb2.SearchRequest(query="violin lesson", top_k=5, page=first.memory.next_page)
    second = await stub.Search(request, metadata=served.reader)
    keys = [hit.memory.key for hit in [*first.memory.hits, *second.memory.hits]]
    assert sorted(keys) == [f"k{number}" for number in range(8)]
    assert (first.memory.candidates_total, second.memory.candidates_total) == (8, 8)
    assert not second.HasField("knowledge")
    request.page = f"{'0' * 32}.1"
    assert (await stub.Search(request, metadata=served.reader)).memory.abstain_code == "page_expired"


async def test_a_search_over_everything_embeds_its_question_once_for_all_legs_and_namespaces(served: Served) -> None:
    stub = search_pb2_grpc.SearchServiceStub(served.channel)
    embedded = served.harness.embedding.queries
    answer = await stub.Search(search_pb2.SearchRequest(query="violin lesson"), metadata=served.reader)
    parts = (answer.memory, answer.knowledge, answer.profile, answer.conversations)
    assert [part.error for part in parts] == [""] * 4
    assert served.harness.embedding.queries - embedded == 1


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("as_of", {"as_of": "yesterday"}),
        ("happened_since", {"happened_since": "2026-13-01"}),
        ("page", {"page": "nonsense"}),
        ("recipe", {"recipe": "best"}),
    ],
)
async def test_what_cannot_be_read_is_refused_by_its_name(served: Served, field: str, body: dict[str, object]) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await served.search("violin", **body)
    assert reason_of(refused.value) == "INVALID_ARGUMENT"
    assert field in str(refused.value.details())


async def test_what_a_run_was_shown_is_told_to_services_alone(served: Served) -> None:
    run = ("x-loom-run-id", "run-7")
    metadata = (*served.reader, run)
    await served.memories.SearchMemories(pb.SearchMemoriesRequest(query="violin", top_k=2), metadata=metadata)
    await served.memories.GetMemory(pb.GetMemoryRequest(key="k3"), metadata=metadata)
    await served.memories.ListMemories(pb.ListMemoriesRequest(page_size=1), metadata=metadata)
    await served.memories.InspectMemory(pb.InspectMemoryRequest(key="k4"), metadata=metadata)
    stub = exposures_pb2_grpc.ExposureServiceStub(served.channel)
    request = exposures_pb2.ListExposuresByRunRequest(org="acme", run_id="run-7")
    with pytest.raises(grpc.aio.AioRpcError):
        await stub.ListExposuresByRun(request, metadata=metadata)
    trusted = (served.deployment.credential("assistant"),)
    answer = await stub.ListExposuresByRun(request, metadata=trusted)
    assert answer.recorded
    assert [each.op for each in answer.exposures] == [
        "memory.search", "memory.search", "memory.get", "memory.list", "memory.inspect",
    ]  # fmt: skip
    assert [each.key for each in answer.exposures][2] == "k3"
    assert {each.subject for each in answer.exposures} == {"sa:bot"}


async def test_a_replay_streams_its_report_to_services_alone(served: Served) -> None:
    await served.search("violin lesson", recipe="verbatim", min_score=0.1)
    await served.harness.parts.searches.traces.rows.flush()
    stub = replay_pb2_grpc.ReplayServiceStub(served.channel)
    request = replay_pb2.ReplayRequest(org="acme", after=replay_pb2.ReplayWay(search_mode="lexical"), limit=2)
    with pytest.raises(grpc.aio.AioRpcError):
        async for _ in stub.Replay(request, metadata=served.reader):
            pass
    reports = [each async for each in stub.Replay(request, metadata=(served.deployment.credential("operator"),))]
    assert [each.done_count for each in reports] == [0, 1, 2, 2]
    assert reports[-1].summary.compared_count == 2
    assert served.llm.calls == []
