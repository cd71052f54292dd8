"""Calls to a remote embedder for someone: what the gate refuses, and what a gateway's refusal does not touch."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.providers import TEST_KEY, ProviderStandIn, Reply, texts_of

from loom_common.attribution import Attribution, Kind
from loom_common.call import Call, bind
from loom_common.errors import (
    ModelCallDeferred,
    ModelCallRefused,
    ModelCallsOff,
    ModelCallUnattributed,
    ModelPolicyUnread,
    Reason,
)
from loom_common.model_calls.gate import ModelCallGate
from loom_common.model_calls.headers import parse_identity_headers
from loom_common.model_calls.policy import InferencePolicy
from loom_common.model_calls.reads import FakeReads
from loom_common.model_calls.switch import FakeSwitch
from loom_embedding.app.queries import QueryCache, QueryEmbedding
from loom_embedding.app.texts import TextEmbedding
from loom_embedding.app.width import probe_width
from loom_embedding.model import OpenModel, open_model
from loom_embedding.settings import EmbeddingSettings

ACME = Attribution("acme", "home", "sa:okta:planner", feature="memory.set")
REFUSED = Reply(403, {"error": {"code": "budget_exceeded"}})


@dataclass(slots=True)
class Service:
    """What the servicer serves, over a remote model behind a gateway."""

    model: OpenModel
    queries: QueryEmbedding
    stored: TextEmbedding
    switch: FakeSwitch
    provider: ProviderStandIn

    @property
    def sent(self) -> list[str]:
        return [text for request in self.provider.requests for text in texts_of(request)]


@asynccontextmanager
async def service(provider: ProviderStandIn, folder: Path, **environ: str) -> AsyncIterator[Service]:
    settings = EmbeddingSettings.load(
        environ={
            "LOOM_DATA_DIR": str(folder),
            "LOOM_EMBEDDING_MODEL": "text-embedding-3-small",
            "LOOM_EMBEDDING_DIM": "8",
            "OPENAI_API_KEY": TEST_KEY,
            "LOOM_OPENAI_BASE_URL": provider.openai_url,
            **environ,
        }
    )
    policy = InferencePolicy(
        customer_header="x-customer",
        identity_headers=parse_identity_headers('{"x-agent":"{agent}"}'),
        gateway_hosts=frozenset({"127.0.0.1"}),
    )
    switch = FakeSwitch()
    async with open_model(settings, ModelCallGate(policy, switch, FakeReads())) as model:
        cache = QueryCache(10, 60, lambda: 0.0)
        yield Service(
            model,
            QueryEmbedding(model.embedder, model.served, model.tokens, cache, gate=model.gate),
            TextEmbedding(model.embedder, model.served, model.tokens, gate=model.gate),
            switch,
            provider,
        )


@pytest.fixture
async def served(stand_in: ProviderStandIn, tmp_path: Path) -> AsyncIterator[Service]:
    async with service(stand_in, tmp_path) as made:
        yield made


async def test_both_paths_and_the_look_at_start_say_whom_they_are_for(served: Service) -> None:
    with bind(Call(attribution=ACME)):
        await served.queries.embed("one")
        await served.stored.embed(["two"])
    await probe_width(served.model.embedder)
    headers = [request.headers for request in served.provider.requests]
    assert [each.get("x-customer") for each in headers] == ["acme", "acme", "_system"]
    assert [each.get("x-agent") for each in headers] == ["planner", "planner", None]


async def test_a_call_that_names_nobody_sends_nothing(served: Service) -> None:
    with pytest.raises(ModelCallUnattributed):
        await served.queries.embed("one")
    with pytest.raises(ModelCallUnattributed):
        await served.stored.embed(["one"])
    assert served.sent == []
    assert served.model.health.problems() == []


async def test_an_organisation_that_is_switched_off_gets_no_cached_vector_either(served: Service) -> None:
    with bind(Call(attribution=ACME)):
        await served.queries.embed("one")
        served.switch.orgs_off.add("acme")
        for _ in range(2):
            with pytest.raises(ModelCallsOff):
                await served.queries.embed("one")
            with pytest.raises(ModelCallsOff):
                await served.stored.embed(["one"])
        served.switch.orgs_off.clear()
        served.switch.unread = True
        with pytest.raises(ModelPolicyUnread):
            await served.queries.embed("one")
        served.switch.unread = False
        await served.queries.embed("one")
    assert served.sent == ["one"]
    assert served.model.health.problems() == []


async def test_a_refused_identity_is_neither_sent_again_nor_the_providers_failure(served: Service) -> None:
    served.provider.script(REFUSED, REFUSED, Reply(429, {"error": {"code": "agent_request_limit"}}))
    with bind(Call(attribution=ACME)):
        with pytest.raises(ModelCallRefused):
            await served.queries.embed("one")
        with pytest.raises(ModelCallRefused):
            await served.stored.embed(["one", "two"])
        with pytest.raises(ModelCallDeferred):
            await served.stored.embed(["one"])
    assert len(served.provider.requests) == 3
    assert served.model.health.problems() == []


async def test_what_was_bought_before_a_refusal_is_kept(served: Service) -> None:
    texts = [f"text {number}" for number in range(250)]  # three requests
    served.provider.rule = lambda request: REFUSED if "text 249" in texts_of(request) else None
    with bind(Call(attribution=ACME)):
        results = await served.stored.embed(texts)
    assert [result.error for result in results[:200]] == [None] * 200
    assert {result.error for result in results[200:]} == {Reason.MODEL_CALL_REFUSED}


async def test_a_job_that_is_held_sends_nothing_while_requests_go_on_asking(served: Service) -> None:
    job = Attribution("acme", "home", "sa:okta:planner", kind=Kind.JOB)
    served.provider.script(REFUSED)
    for _ in range(2):
        with bind(Call(attribution=job)), pytest.raises(ModelCallRefused):
            await served.stored.embed(["one"])
    assert len(served.provider.requests) == 1
    with bind(Call(attribution=ACME)):
        await served.stored.embed(["one"])
    with bind(Call(attribution=job)):
        await served.stored.embed(["one"])
    assert len(served.provider.requests) == 3


async def test_a_gemini_model_is_gated_alike(stand_in: ProviderStandIn, tmp_path: Path) -> None:
    gemini = {
        "LOOM_EMBEDDING_MODEL": "gemini-embedding-001",
        "GEMINI_API_KEY": TEST_KEY,
        "LOOM_GEMINI_BASE_URL": stand_in.gemini_url,
    }
    async with service(stand_in, tmp_path, **gemini) as made:
        with bind(Call(attribution=ACME)):
            await made.queries.embed("one")
            stand_in.script(REFUSED)
            with pytest.raises(ModelCallRefused):
                await made.queries.embed("two")
            made.switch.orgs_off.add("acme")
            with pytest.raises(ModelCallsOff):
                await made.queries.embed("one")
    assert [request.headers["x-agent"] for request in stand_in.requests] == ["planner", "planner"]
    assert stand_in.requests[0].headers["x-goog-api-key"] == TEST_KEY


async def test_a_model_in_this_process_is_not_switched_off(stand_in: ProviderStandIn, tmp_path: Path) -> None:
    async with service(stand_in, tmp_path, LOOM_EMBEDDING_MODEL="fake-ngram-64", LOOM_EMBEDDING_DIM="64") as made:
        made.switch.orgs_off.add("acme")
        with bind(Call(attribution=ACME)):
            assert len(await made.queries.embed("one")) == 64
            assert (await made.stored.embed(["one"]))[0].error is None
