"""Whom calls to models of text are for: headers under both SDKs, the switch, and what a gateway refuses."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from support.grpc import Deployment
from support.llm_service import Rig
from support.providers import ANTHROPIC_MESSAGES, OPENAI_CHAT, TEST_KEY, Reply
from support.watching import telling_identity

from loom.common.v1 import status_pb2, status_pb2_grpc
from loom.llm.v1 import llm_pb2 as pb
from loom.llm.v1 import llm_pb2_grpc as pb_grpc
from loom_common.attribution import Attribution, Kind
from loom_common.call import Call, bind
from loom_common.errors import ModelCallDeferred, ModelCallRefused, ModelCallsOff, ProviderFailed
from loom_llm.wiring import open_service

ACME = Attribution("acme", "home", "sa:okta:planner", feature="memory.ask")
JOB = replace(ACME, feature="entity_extractor", kind=Kind.JOB)
REFUSED = Reply(403, {"error": {"code": "agent_denied", "message": "not you"}})
WAIT = Reply(429, {"error": {"code": "agent_request_limit"}}, {"retry-after": "60"})
NAMES = {"x-customer": "acme", "x-feature": "memory.ask", "x-agent": "planner"}


class Service:
    """The running service, called for somebody."""

    def __init__(self, rig: Rig, stub: "pb_grpc.LlmServiceAsyncStub", status: "status_pb2_grpc.StatusServiceAsyncStub"):
        self.provider = rig.stand_in
        self._stub = stub
        self._status = status

    async def complete(self, attribution: Attribution = ACME, **more: str) -> str:
        with bind(Call(attribution=attribution)):
            answer = await self._stub.Complete(pb.CompleteRequest(user="hi", **more))
        return answer.text

    async def chat(self, attribution: Attribution = ACME, **more: str) -> str:
        request = pb.ChatRequest(messages=[pb.ChatMessage(role="user", text="hi")], **more)
        with bind(Call(attribution=attribution)):
            return "".join([message.text async for message in self._stub.Chat(request)])

    async def problems(self) -> set[str]:
        report = await self._status.GetStatus(status_pb2.GetStatusRequest())
        return {problem.code for problem in report.problems}


@asynccontextmanager
async def serving(rig: Rig, identity: str) -> AsyncIterator[Service]:
    settings = replace(rig, identity=identity).settings(
        OPENAI_API_KEY=TEST_KEY,
        ANTHROPIC_API_KEY=TEST_KEY,
        LOOM_LLM_PROVIDER="openai",
        LOOM_LLM_FALLBACK_MODEL="claude-haiku-4-5",
        LOOM_INFERENCE_CUSTOMER_HEADER="x-customer",
        LOOM_INFERENCE_FEATURE_HEADER="x-feature",
        LOOM_INFERENCE_IDENTITY_HEADERS_JSON='{"x-agent": "{agent}"}',
        LOOM_INFERENCE_GATEWAY_HOSTS="127.0.0.1",
    )
    async with (
        open_service(settings, rig.clickhouse) as server,
        rig.deployment.channel(server.address, "memory") as channel,
    ):
        yield Service(rig, pb_grpc.LlmServiceStub(channel), status_pb2_grpc.StatusServiceStub(channel))


@pytest.fixture
async def service(rig: Rig, deployment: Deployment) -> AsyncIterator[Service]:
    async with telling_identity(deployment, off=["globex"]) as identity, serving(rig, identity) as made:
        yield made


async def test_every_way_to_a_model_says_whom_it_is_for_under_both_sdks(service: Service) -> None:
    await service.complete()
    await service.chat()
    await service.complete(model="claude-haiku-4-5")
    await service.chat(model="claude-haiku-4-5")
    seen = [(request.path, request.headers) for request in service.provider.requests]
    assert [path for path, _ in seen] == [OPENAI_CHAT] * 2 + [ANTHROPIC_MESSAGES] * 2
    assert [{name: headers.get(name) for name in NAMES} for _, headers in seen] == [NAMES] * 4


async def test_an_organisation_that_is_switched_off_reaches_no_model(service: Service) -> None:
    off = replace(ACME, org="globex")
    with pytest.raises(ModelCallsOff):
        await service.complete(off)
    with pytest.raises(ModelCallsOff):
        await service.chat(off)
    assert service.provider.requests == []


@pytest.mark.parametrize("way", ["complete", "chat"])
async def test_a_refusal_is_neither_retried_nor_handed_over_nor_the_providers_failure(
    service: Service, way: str
) -> None:
    ask = service.complete if way == "complete" else service.chat
    service.provider.script(REFUSED, WAIT)
    with pytest.raises(ModelCallRefused) as refused:
        await ask()
    assert {name: str(value) for name, value in refused.value.detail.items()} == {
        "gateway_status": "403",
        "gateway_code": "agent_denied",
    }
    with pytest.raises(ModelCallDeferred) as deferred:
        await ask()
    assert deferred.value.retry_after_s == 60
    assert [request.path for request in service.provider.requests] == [OPENAI_CHAT] * 2
    assert not {code for code in await service.problems() if code.startswith("provider_failing")}
    assert await ask() == "echo: hi"


async def test_a_job_is_held_at_one_model_and_a_request_that_succeeds_ends_it(service: Service) -> None:
    service.provider.script(REFUSED)
    for _ in range(2):
        with pytest.raises(ModelCallRefused):
            await service.complete(JOB)
    assert len(service.provider.requests) == 1
    await service.complete(JOB, model="claude-haiku-4-5")
    await service.complete(replace(JOB, subject="sa:okta:other"))
    await service.complete(ACME)
    await service.complete(JOB)
    assert len(service.provider.requests) == 5


async def test_another_refusal_is_the_providers_and_is_seen_as_that(service: Service) -> None:
    service.provider.script(Reply(403, {"error": {"code": "token_unavailable"}}))
    with pytest.raises(ProviderFailed):
        await service.complete()
    assert "provider_failing:openai" in await service.problems()
