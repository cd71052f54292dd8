"""Reranking and classifying over gRPC, with a stand-in for the servers behind them."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Final

import grpc.aio
import pytest
from pydantic import JsonValue
from support.grpc import Deployment, bad_request, reason_of
from support.llm_service import Rig
from support.providers import TEST_KEY, Received, Reply
from support.watching import telling_identity

from loom.common.v1 import status_pb2, status_pb2_grpc
from loom.llm.v1 import llm_pb2 as pb
from loom.llm.v1 import llm_pb2_grpc as pb_grpc
from loom_common.attribution import ATTRIBUTION_KEY, Attribution
from loom_common.call import Call, bind
from loom_common.errors import InvalidArgument, LoomError, ModelCallsOff, ProviderFailed, ReadsLlmFree
from loom_llm.wiring import open_service

ACME: Final = Attribution("acme", "home", "sa:okta:planner", feature="memory.search", read_only=True)
WRITE: Final = replace(ACME, feature="memory.set", read_only=False)
OFF: Final = replace(WRITE, org="globex")
DOCUMENTS: Final = ["red", "blue", "green"]


def answered(request: Received) -> Reply | None:
    """Answers as the servers do: the last document is the best."""
    if request.path == "/predict":
        return Reply(body=[[{"label": "legal", "score": 0.93}, {"label": "other", "score": 0.2}]])
    if "rerank" not in request.path:
        return None
    given = request.json.get("documents") or request.json.get("texts")
    count = len(given) if isinstance(given, list) else 0
    if "texts" in request.json:
        return Reply(body=[{"index": at, "score": (at + 1) / count} for at in range(count)])
    results: list[JsonValue] = [{"index": at, "relevance_score": (at + 1) / count} for at in range(count)]
    return Reply(body={"results": results, "meta": {"billed_units": {"search_units": 1}}})


@dataclass(frozen=True, slots=True)
class Service:
    """The running service, called for somebody."""

    rig: Rig
    channel: grpc.aio.Channel
    address: str

    async def rerank(
        self, reranker: str, *, attribution: Attribution = ACME, named: bool = True, top_n: int | None = None
    ) -> tuple[pb.RerankResponse, Call]:
        request = pb.RerankRequest(reranker=reranker, query="green", documents=DOCUMENTS, named=named, top_n=top_n)
        with bind(Call(attribution=attribution)) as call:
            return await pb_grpc.LlmServiceStub(self.channel).Rerank(request), call

    async def classify(self, endpoint: str = "topics", attribution: Attribution = WRITE) -> pb.ClassifyResponse:
        with bind(Call(attribution=attribution)):
            return await pb_grpc.LlmServiceStub(self.channel).Classify(pb.ClassifyRequest(endpoint=endpoint, text="t"))

    async def problems(self) -> set[str]:
        stub = status_pb2_grpc.StatusServiceStub(self.channel)
        report = await stub.GetStatus(status_pb2.GetStatusRequest())
        return {problem.code for problem in report.problems}


@pytest.fixture
async def service(rig: Rig, deployment: Deployment) -> AsyncIterator[Service]:
    root = f"http://127.0.0.1:{rig.stand_in.port}"
    elsewhere = f"http://localhost:{rig.stand_in.port}"
    rig.stand_in.rule = answered
    headers = {"x-secret": TEST_KEY}
    rerankers = {
        "gateway": {"url": f"{root}/rerank", "format": "tei", "headers": headers},
        "elsewhere": {"url": f"{elsewhere}/rerank", "format": "tei", "headers": headers},
    }
    async with telling_identity(deployment, off=["globex"]) as identity:
        settings = replace(rig, identity=identity).settings(
            OPENAI_API_KEY=TEST_KEY,
            COHERE_API_KEY="sk-cohere",
            LOOM_COHERE_BASE_URL=root,
            LOOM_RERANK_ENDPOINTS_JSON=json.dumps(rerankers),
            LOOM_CLASSIFY_ENDPOINTS_JSON=json.dumps({"topics": {"url": f"{elsewhere}/predict"}}),
            LOOM_READS_LLM_FREE=True,
            LOOM_INFERENCE_CUSTOMER_HEADER="x-customer",
            LOOM_INFERENCE_IDENTITY_HEADERS_JSON='{"x-agent": "{agent}"}',
            LOOM_INFERENCE_GATEWAY_HOSTS="127.0.0.1",
        )
        async with (
            open_service(settings, rig.clickhouse) as server,
            rig.deployment.channel(server.address, "memory") as channel,
        ):
            yield Service(rig, channel, server.address)


async def test_rerankers_score_say_what_they_cost_and_learn_no_more_than_they_may(service: Service) -> None:
    ranked, call = await service.rerank("builtin:cohere", top_n=2)
    assert [(one.index, round(one.relevance_score, 2)) for one in ranked.results] == [(2, 1.0), (1, 0.67)]
    assert (ranked.provider, ranked.model, ranked.reranked) == ("cohere", "rerank-v4.0-fast", True)
    assert (call.usage.llm_calls, call.usage.model) == (1, "rerank-v4.0-fast")
    assert call.usage.upstream_cost_usd == pytest.approx(0.002)
    for name in ("gateway", "elsewhere"):
        ranked, _ = await service.rerank(name)
        assert [one.index for one in ranked.results] == [2, 1, 0]
        assert (ranked.provider, ranked.model) == (f"rerank:{name}", "")
    ranked, _ = await service.rerank("builtin:openai", attribution=WRITE)
    # The stand-in's model echoes the prompt, which holds no scores.
    assert ([one.index for one in ranked.results], ranked.reranked) == ([0, 1, 2], False)
    assert [one.label for one in (await service.classify()).labels] == ["legal"]
    seen = [
        (one.path, one.headers.get("x-agent"), one.headers.get("x-customer")) for one in service.rig.stand_in.requests
    ]
    assert seen == [
        ("/v2/rerank", "planner", "acme"),
        ("/rerank", "planner", "acme"),
        ("/rerank", None, "acme"),
        ("/v1/chat/completions", "planner", "acme"),
        ("/predict", None, "acme"),
    ]
    sent = service.rig.stand_in.requests
    assert sent[0].headers["authorization"] == "Bearer sk-cohere"
    assert [one.headers.get("x-secret") for one in sent] == [None, TEST_KEY, TEST_KEY, None, None]


async def test_what_may_not_run_sends_nothing(service: Service) -> None:
    cases: list[tuple[str, Attribution, bool, type[LoomError]]] = [
        ("builtin:openai", ACME, True, ReadsLlmFree),
        ("builtin:cohere", ACME, False, ReadsLlmFree),
        ("gateway", ACME, False, ReadsLlmFree),
        ("gateway", OFF, True, ModelCallsOff),
        ("builtin:openai", OFF, True, ModelCallsOff),
        ("unlisted", ACME, True, InvalidArgument),
    ]
    for reranker, attribution, named, refused in cases:
        with pytest.raises(refused):
            await service.rerank(reranker, attribution=attribution, named=named)
    with pytest.raises(ModelCallsOff):
        await service.classify(attribution=OFF)
    with pytest.raises(InvalidArgument):
        await service.classify("unlisted")
    assert service.rig.stand_in.requests == []


async def test_a_server_that_fails_is_seen_on_health_until_it_answers(service: Service) -> None:
    service.rig.stand_in.script(*[Reply.error(401, f"no such key {TEST_KEY}")] * 2)
    with pytest.raises(ProviderFailed) as caught:
        await service.rerank("gateway")
    with pytest.raises(ProviderFailed):
        await service.classify()
    assert caught.value.detail["provider"] == "rerank:gateway"
    assert TEST_KEY not in f"{caught.value} {caught.value.detail}"
    assert {"provider_failing:rerank:gateway", "provider_failing:classify:topics"} <= await service.problems()
    await service.rerank("gateway")
    await service.classify()
    assert not {code for code in await service.problems() if code.startswith("provider_failing")}


async def test_only_services_may_rerank_and_classify_and_only_within_the_rules(service: Service) -> None:
    good = pb.RerankRequest(reranker="gateway", query="q", documents=["a"], named=True)
    async with grpc.aio.insecure_channel(service.address) as raw:
        stub = pb_grpc.LlmServiceStub(raw)
        for metadata in ((), (("x-loom-service", "forged"),), ((ATTRIBUTION_KEY, ACME.to_bytes()),)):
            for refused in (
                stub.Rerank(good, metadata=metadata),
                stub.Classify(pb.ClassifyRequest(endpoint="topics", text="t"), metadata=metadata),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await refused
                assert caught.value.code() in {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Rerank(good, metadata=service.rig.metadata(None))
        assert reason_of(caught.value) == "MODEL_CALL_UNATTRIBUTED"
        for request, field in (
            (pb.RerankRequest(query="q", documents=["a"]), "reranker"),
            (pb.RerankRequest(reranker="gateway", documents=["a"]), "query"),
            (pb.RerankRequest(reranker="gateway", query="q"), "documents"),
            (pb.RerankRequest(reranker="gateway", query="q", documents=["a"], top_n=0), "top_n"),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Rerank(request, metadata=service.rig.metadata())
            assert [violation.field for violation in bad_request(caught.value).field_violations] == [field]
    assert service.rig.stand_in.requests == []
