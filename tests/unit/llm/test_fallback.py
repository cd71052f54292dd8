"""The fallback model: when it is asked, what it answers for, and what it never hides."""

import pytest
from structlog.testing import capture_logs
from support.llm import ScriptedClient, failure

from loom_common.call import Call, bind
from loom_common.errors import LoomError, ModelCallDeferred, ModelCallRefused
from loom_common.providers import FailureKind, ProviderError
from loom_llm.app.fallback import FallbackClient
from loom_llm.domain.messages import ChatRequest, Delta, LLMResult

ASKED = ChatRequest.of_prompt("", "a")
FIRST = LLMResult("first answers", "openai", "gpt-6-luna")
SECOND = LLMResult("second answers", "anthropic", "claude-haiku-4-5")

OUTAGES = [failure(status) for status in (429, 500, 502, 503, 504, 529)] + [
    failure(kind=FailureKind.TIMEOUT),
    failure(kind=FailureKind.CONNECTION),
]
REJECTED = [failure(status) for status in (400, 413, 422)]
KEPT = [failure(status) for status in (401, 402, 403, 404, 408, 409)] + [failure(kind=FailureKind.MALFORMED)]
REFUSALS = [ModelCallRefused("no"), ModelCallDeferred("later")]


def second() -> ScriptedClient:
    return ScriptedClient(SECOND, provider="anthropic", model="claude-haiku-4-5")


def over(first: ScriptedClient, stand_in: ScriptedClient, *, total_s: float = 5.0) -> FallbackClient:
    return FallbackClient(first, stand_in, total_s=total_s)


async def read(client: FallbackClient) -> list[Delta]:
    return [delta async for delta in client.chat(ASKED)]


@pytest.mark.parametrize("error", [*OUTAGES, *REJECTED])
async def test_an_outage_or_a_rejected_request_goes_to_the_second_model_which_is_named(error: ProviderError) -> None:
    result = await over(ScriptedClient(error), second()).complete("", "a")
    assert (result.text, result.model, result.provider, result.fell_back) == (
        "second answers",
        "claude-haiku-4-5",
        "anthropic",
        True,
    )
    deltas = await read(over(ScriptedClient(error), second()))
    assert "".join(delta.text for delta in deltas) == "second answers"
    assert deltas[-1].result is not None
    assert (deltas[-1].result.model, deltas[-1].result.fell_back) == ("claude-haiku-4-5", True)


@pytest.mark.parametrize("error", [*KEPT, *REFUSALS])
async def test_any_other_failure_and_every_refusal_stays_with_the_first(error: ProviderError | LoomError) -> None:
    stand_in = second()
    with pytest.raises(type(error)):
        await over(ScriptedClient(error), stand_in).complete("", "a")
    with pytest.raises(type(error)):
        await read(over(ScriptedClient(error), stand_in))
    assert stand_in.calls == 0


async def test_a_first_model_that_answers_leaves_the_second_alone() -> None:
    stand_in = second()
    result = await over(ScriptedClient(FIRST), stand_in).complete("", "a")
    assert (result, result.fell_back) == (FIRST, False)
    assert [delta.text for delta in await read(over(ScriptedClient(FIRST), stand_in))] == ["first", " answers", ""]
    assert stand_in.calls == 0


async def test_fallbacks_do_not_chain() -> None:
    both = over(ScriptedClient(failure(503)), ScriptedClient(failure(429), provider="anthropic"))
    with pytest.raises(ProviderError) as caught:
        await both.complete("", "a")
    assert caught.value.status == 429


async def test_a_stream_that_has_shown_something_is_not_handed_over() -> None:
    stand_in = second()
    seen: list[str] = []

    async def listen() -> None:
        async for delta in over(ScriptedClient([FIRST, failure(503)]), stand_in).chat(ASKED):
            seen.append(delta.text)  # noqa: PERF401 - what came before the failure is what is looked at

    with pytest.raises(ProviderError):
        await listen()
    assert seen == ["first", " answers"]
    assert stand_in.calls == 0


async def test_nobody_is_asked_for_a_caller_that_has_left() -> None:
    stand_in = second()
    with bind(Call(deadline=0.0)), pytest.raises(ProviderError):
        await over(ScriptedClient(failure(503)), stand_in).complete("", "a")
    assert stand_in.calls == 0


async def test_both_models_together_end_at_the_total_deadline() -> None:
    for call in (
        over(ScriptedClient(failure(503)), ScriptedClient(provider="anthropic"), total_s=0.05).complete("", "a"),
        read(over(ScriptedClient(failure(503)), ScriptedClient(provider="anthropic"), total_s=0.05)),
    ):
        with pytest.raises(ProviderError) as caught:
            await call
        assert (caught.value.provider, caught.value.kind) == ("anthropic", FailureKind.TIMEOUT)


async def test_a_hand_over_is_logged_with_what_made_it_needed() -> None:
    with capture_logs() as logs:
        await over(ScriptedClient(failure(503)), second()).complete("", "a")
    assert [line for line in logs if line["event"] == "llm_fallback"] == [
        {
            "event": "llm_fallback",
            "log_level": "warning",
            "model": "gpt-6-luna",
            "fallback": "claude-haiku-4-5",
            "provider": "openai",
            "kind": "status",
            "status": 503,
        }
    ]
