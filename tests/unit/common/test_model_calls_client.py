"""The client of calls to models under the real SDKs: who learns whom a call is for, and what refusals become."""

import gzip
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import cached_property
from typing import Any

import anthropic
import openai
import pytest
from support.providers import TEST_KEY, ProviderStandIn, Received, Reply

from loom_common.attribution import Attribution, Kind
from loom_common.call import Call, bind
from loom_common.clock import FakeClock
from loom_common.errors import ModelCallDeferred, ModelCallRefused, ModelCallUnattributed
from loom_common.model_calls.client import ModelClient, as_themselves
from loom_common.model_calls.gate import ModelCallGate
from loom_common.model_calls.headers import parse_identity_headers
from loom_common.model_calls.holds import Holds
from loom_common.model_calls.policy import InferencePolicy
from loom_common.model_calls.reads import FakeReads
from loom_common.model_calls.switch import FakeSwitch
from loom_common.providers import ProviderError, http
from loom_embedding.providers.gemini import GeminiApi

AGENT = "sa:okta:planner"
REFUSED = Reply(403, {"error": {"code": "agent_denied", "type": "permission", "message": "no"}})


def asked_to_wait(**headers: str) -> Reply:
    """Returns the answer of a gateway whose agent asks too often."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(429, {"error": {"code": "agent_request_limit", "message": "slowly"}}, sent)


class Rig:
    """A gateway, another host, and a client for either."""

    def __init__(self, gateway: ProviderStandIn, other: ProviderStandIn, stack: AsyncExitStack) -> None:
        self.gateway, self.other, self.stack = gateway, other, stack
        self.clock = FakeClock()
        self.holds = Holds(self.clock)
        self.policy = InferencePolicy(
            customer_header="x-customer",
            feature_header="x-feature",
            identity_headers=parse_identity_headers('{"x-agent":"{agent}","x-user":"{user_id}"}'),
            gateway_hosts=frozenset({f"127.0.0.1:{gateway.port}"}),
        )
        self.gate = ModelCallGate(self.policy, FakeSwitch(), FakeReads(), self.clock)

    @cached_property
    def client(self) -> ModelClient:
        made = ModelClient(self.policy, timeout_s=5, connect_timeout_s=5, holds=self.holds)
        self.stack.push_async_callback(made.aclose)
        return made

    async def ask(
        self,
        sdk: str = "openai",
        *,
        kind: Kind = Kind.REQUEST,
        model: str = "m",
        subject: str = AGENT,
        org: str = "acme",
        at: ProviderStandIn | None = None,
    ) -> None:
        """Makes one call through the gate, as a service does."""
        attribution = Attribution(org, "home", subject, feature="memory.search", kind=kind)
        with bind(Call(attribution=attribution)):
            await self.gate.require()
            await self.send(sdk, model, at or self.gateway)

    async def send(self, sdk: str, model: str, at: ProviderStandIn) -> None:
        with as_themselves():
            await SENDERS[sdk](self, model, at)


async def by_openai(rig: Rig, model: str, at: ProviderStandIn) -> None:
    sdk = openai.AsyncOpenAI(api_key=TEST_KEY, base_url=at.openai_url, max_retries=0, http_client=rig.client)
    await sdk.chat.completions.create(model=model, messages=[{"role": "user", "content": "x"}])


async def by_openai_stream(rig: Rig, model: str, at: ProviderStandIn) -> None:
    sdk = openai.AsyncOpenAI(api_key=TEST_KEY, base_url=at.openai_url, max_retries=0, http_client=rig.client)
    await sdk.chat.completions.create(model=model, messages=[{"role": "user", "content": "x"}], stream=True)


async def by_anthropic(rig: Rig, model: str, at: ProviderStandIn) -> None:
    sdk = anthropic.AsyncAnthropic(api_key=TEST_KEY, base_url=at.anthropic_url, max_retries=0, http_client=rig.client)
    await sdk.messages.create(model=model, max_tokens=5, messages=[{"role": "user", "content": "x"}])


async def by_gemini(rig: Rig, model: str, at: ProviderStandIn) -> None:
    api = GeminiApi(
        model, 8, TEST_KEY, base_url=at.gemini_url, timeout_s=5, connect_timeout_s=5, http_client=rig.client
    )
    await api.embed(["x"])


SENDERS: dict[str, Callable[[Rig, str, ProviderStandIn], Awaitable[None]]] = {
    "openai": by_openai,
    "openai_stream": by_openai_stream,
    "anthropic": by_anthropic,
    "gemini": by_gemini,
}
every_sdk = pytest.mark.parametrize("sdk", SENDERS)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(ProviderStandIn().running())
        other = await stack.enter_async_context(ProviderStandIn().running())
        yield Rig(gateway, other, stack)


def redirect_once(gateway: ProviderStandIn) -> None:
    """Lets the next request be led to another address of the same server, which the script answers."""
    gateway.script(Reply(307, headers={"location": "?moved"}))


def names(request: Received) -> dict[str, str]:
    """Returns the headers that say whom a request is for."""
    return {name: value for name, value in request.headers.items() if name[2:] in NAMES and name.startswith("x-")}


NAMES = {"customer", "feature", "agent", "user"}
CUSTOMER = {"x-customer": "acme", "x-feature": "memory.search"}
IDENTITY = {"x-agent": "planner", "x-user": AGENT}


@every_sdk
async def test_a_gateway_learns_whom_a_request_is_for(rig: Rig, sdk: str) -> None:
    await rig.ask(sdk)
    assert [names(request) for request in rig.gateway.requests] == [CUSTOMER | IDENTITY]


async def test_a_provider_that_is_no_gateway_learns_the_customer_only(rig: Rig) -> None:
    await rig.ask(at=rig.other)
    assert names(rig.other.requests[0]) == CUSTOMER


@every_sdk
async def test_a_redirect_to_another_host_is_not_followed(rig: Rig, sdk: str) -> None:
    rig.gateway.rule = lambda request: Reply(
        307, headers={"location": f"http://127.0.0.1:{rig.other.port}{request.path}"}
    )
    with pytest.raises((openai.APIStatusError, anthropic.APIStatusError, ProviderError)):
        await rig.ask(sdk)
    assert len(rig.gateway.requests) == 1
    assert rig.other.requests == []


@every_sdk
async def test_a_redirect_on_the_gateway_itself_names_them_again(rig: Rig, sdk: str) -> None:
    redirect_once(rig.gateway)
    await rig.ask(sdk)
    assert [names(request) for request in rig.gateway.requests] == [CUSTOMER | IDENTITY] * 2
    assert rig.gateway.requests[0].json == rig.gateway.requests[1].json


@pytest.mark.parametrize("sdk", ["openai", "anthropic", "gemini"])
async def test_an_answer_that_unpacks_without_end_is_broken_off(
    rig: Rig, sdk: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "MAX_ANSWER_BYTES", 10_000)
    rig.gateway.script(Reply(body=gzip.compress(b" " * 10_001), headers={"content-encoding": "gzip"}))
    with pytest.raises((openai.APIConnectionError, anthropic.APIConnectionError, ProviderError)):
        await rig.ask(sdk)


@every_sdk
async def test_a_request_that_no_gate_let_pass_is_not_sent(rig: Rig, sdk: str) -> None:
    with pytest.raises(ModelCallUnattributed):
        await rig.send(sdk, "m", rig.gateway)
    with bind(Call(attribution=Attribution("acme"))), pytest.raises(ModelCallUnattributed):
        await rig.send(sdk, "m", rig.gateway)
    assert rig.gateway.requests == []


@every_sdk
async def test_a_refusal_of_the_identity_is_raised_as_itself_after_one_request(rig: Rig, sdk: str) -> None:
    rig.gateway.script(REFUSED)
    with pytest.raises(ModelCallRefused) as caught:
        await rig.ask(sdk)
    assert caught.value.detail == {"gateway_status": 403, "gateway_code": "agent_denied"}
    assert caught.value.row.http == 403
    assert len(rig.gateway.requests) == 1


@pytest.mark.parametrize(
    "reply",
    [
        Reply(404, {"error": {"code": "agent_denied"}}),
        Reply(403, {"error": {"code": "agent_denied_now", "message": "agent_denied"}}),
        Reply(403, {"code": "agent_denied"}),
        Reply(403, {"error": "agent_denied"}),
        Reply(403, "agent_denied"),
        Reply(403, {"error": {"code": "token_unavailable"}}),
        Reply(429, {"error": {"code": "rate_limit"}}),
    ],
)
async def test_any_other_answer_is_the_providers(rig: Rig, reply: Reply) -> None:
    rig.gateway.script(reply)
    with pytest.raises(openai.APIStatusError):
        await rig.ask()


async def test_what_looks_like_a_refusal_is_the_providers_where_the_host_is_no_gateway(rig: Rig) -> None:
    rig.other.script(REFUSED)
    with pytest.raises(ProviderError):
        await rig.ask("gemini", at=rig.other)


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [({"retry_after": "7"}, 7), ({"retry_after": "9000"}, 300), ({}, 1)],
)
async def test_a_gateway_that_asks_to_wait_defers_the_call_for_five_minutes_at_most(
    rig: Rig, headers: dict[str, str], wait_s: float
) -> None:
    rig.gateway.script(asked_to_wait(**headers))
    with pytest.raises(ModelCallDeferred) as caught:
        await rig.ask()
    assert caught.value.retry_after_s == wait_s
    assert caught.value.detail == {"gateway_status": 429, "gateway_code": "agent_request_limit"}
    assert caught.value.row.http == 503
    assert len(rig.gateway.requests) == 1


@every_sdk
async def test_a_request_waits_out_a_short_wait_once(rig: Rig, sdk: str) -> None:
    rig.gateway.script(asked_to_wait(retry_after_ms="5"))
    await rig.ask(sdk)
    assert len(rig.gateway.requests) == 2
    assert rig.gateway.requests[0].json == rig.gateway.requests[1].json
    rig.gateway.script(asked_to_wait(retry_after_ms="5"), asked_to_wait(retry_after_ms="5"))
    with pytest.raises(ModelCallDeferred):
        await rig.ask(sdk)
    assert len(rig.gateway.requests) == 4


async def test_a_short_wait_after_a_redirect_is_waited_out_too(rig: Rig) -> None:
    redirect_once(rig.gateway)
    rig.gateway.script(asked_to_wait(retry_after_ms="5"))
    await rig.ask()
    assert len(rig.gateway.requests) == 3
    assert names(rig.gateway.requests[2]) == CUSTOMER | IDENTITY


async def test_a_wait_that_the_caller_has_no_time_for_is_not_begun(rig: Rig) -> None:
    rig.gateway.script(asked_to_wait(retry_after="2"))
    attribution = Attribution("acme", "home", AGENT)
    with bind(Call(attribution=attribution, deadline=time.monotonic() + 1)):
        await rig.gate.require()
        with pytest.raises(ModelCallDeferred):
            await rig.send("openai", "m", rig.gateway)


async def test_a_job_neither_waits_nor_asks_again_until_its_hold_ends(rig: Rig) -> None:
    job: dict[str, Any] = {"kind": Kind.JOB}
    rig.gateway.script(REFUSED)
    for _ in range(2):
        with pytest.raises(ModelCallRefused):
            await rig.ask(**job)
    assert len(rig.gateway.requests) == 1
    rig.clock.advance(rig.policy.cooldown_s + 1)
    rig.gateway.script(asked_to_wait(retry_after="1"))
    for _ in range(2):
        with pytest.raises(ModelCallDeferred) as caught:
            await rig.ask(**job)
        assert caught.value.retry_after_s == pytest.approx(1)
    assert len(rig.gateway.requests) == 2
    rig.clock.advance(2)
    await rig.ask(**job)
    assert len(rig.gateway.requests) == 3


async def test_a_hold_is_one_identitys_at_one_place_and_model(rig: Rig) -> None:
    rig.gateway.script(REFUSED)
    with pytest.raises(ModelCallRefused):
        await rig.ask(kind=Kind.JOB)
    await rig.ask(kind=Kind.JOB, model="another")
    await rig.ask(kind=Kind.JOB, subject="sa:okta:other")
    await rig.ask(kind=Kind.JOB, org="globex")
    await rig.ask("anthropic", kind=Kind.JOB)
    await rig.ask(kind=Kind.JOB, at=rig.other)
    with pytest.raises(ModelCallRefused):
        await rig.ask(kind=Kind.JOB)


async def test_a_hold_behind_a_redirect_is_one_models_too(rig: Rig) -> None:
    redirect_once(rig.gateway)
    rig.gateway.script(REFUSED)
    for _ in range(2):
        with pytest.raises(ModelCallRefused):
            await rig.ask(kind=Kind.JOB)
    assert len(rig.gateway.requests) == 2
    await rig.ask(kind=Kind.JOB, model="another")
    assert len(rig.gateway.requests) == 3


async def test_a_request_always_asks_and_its_success_ends_the_hold(rig: Rig) -> None:
    rig.gateway.script(REFUSED, REFUSED)
    with pytest.raises(ModelCallRefused):
        await rig.ask(kind=Kind.JOB)
    with pytest.raises(ModelCallRefused):
        await rig.ask()
    assert len(rig.gateway.requests) == 2
    await rig.ask()
    await rig.ask(kind=Kind.JOB)
    assert len(rig.gateway.requests) == 4


async def test_a_request_that_is_refused_holds_no_job(rig: Rig) -> None:
    rig.gateway.script(REFUSED)
    with pytest.raises(ModelCallRefused):
        await rig.ask()
    await rig.ask(kind=Kind.JOB)
    assert len(rig.gateway.requests) == 2
