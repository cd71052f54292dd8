"""The gates before a model, what a failure tells, and what a call costs."""

import asyncio
from collections.abc import Mapping

import pytest
from support.llm import ScriptedClient, models_of, orphans_of

from loom_common.attribution import Attribution, Kind
from loom_common.call import Call, bind
from loom_common.errors import ModelCallUnattributed, ProviderFailed, ReadsLlmFree
from loom_common.ledger import FakeLedgerSink
from loom_common.providers import FailureKind, ProviderError
from loom_common.usage import Usage
from loom_llm.app.completion import CacheUse, Completion, Prompt
from loom_llm.app.gate import Gate
from loom_llm.app.status import LlmStatus
from loom_llm.app.watching import Healths
from loom_llm.domain.client import LLMClient
from loom_llm.domain.messages import LLMResult
from loom_llm.domain.selection import select
from loom_llm.providers.fake import FakeClient

FOR_ACME = Attribution(org="acme", feature="memory.ask")
READ = Attribution(org="acme", feature="memory.search", read_only=True)


def answer(**counts: int) -> LLMResult:
    return LLMResult("text", "openai", "gpt-6-luna-2026", **counts)


ASKED = Prompt("", "a")


def completion_of(client: LLMClient, healths: Healths | None = None, *, reads_llm_free: bool = False) -> Completion:
    return Completion(models_of(client, healths), orphans_of(FakeLedgerSink()), Gate(reads_llm_free=reads_llm_free))


async def test_what_a_call_spent_lands_on_the_running_call() -> None:
    client = ScriptedClient(answer(input_tokens=11, output_tokens=7, cached_input_tokens=5), answer(input_tokens=1))
    completion = completion_of(client)
    with bind(Call(attribution=FOR_ACME)) as call:
        await completion.complete(ASKED)
        await completion.complete(ASKED)
    assert call.usage == Usage(
        input_tokens=12, output_tokens=7, cached_tokens=5, llm_calls=2, model="gpt-6-luna-2026", model_tokens=19
    )


async def test_an_answer_from_looms_own_cache_spends_nothing() -> None:
    cached = LLMResult("text", "openai", "gpt-6-luna", input_tokens=11, from_cache=True)
    with bind(Call(attribution=FOR_ACME)) as call:
        await completion_of(ScriptedClient(cached)).complete(ASKED)
    assert (call.usage.llm_calls, call.usage.input_tokens, call.usage.upstream_cost_usd) == (0, 0, 0.0)


async def test_a_call_that_names_nobody_is_refused_before_the_provider() -> None:
    client = ScriptedClient(answer())
    with bind(Call()), pytest.raises(ModelCallUnattributed):
        await completion_of(client).complete(ASKED)
    assert client.calls == 0


async def test_a_read_is_refused_where_reads_are_free_of_models() -> None:
    client = ScriptedClient(answer())
    with bind(Call(attribution=READ)), pytest.raises(ReadsLlmFree) as caught:
        await completion_of(client, reads_llm_free=True).complete(ASKED)
    assert caught.value.detail == {"setting": "LOOM_READS_LLM_FREE"}
    assert client.calls == 0


@pytest.mark.parametrize(
    ("attribution", "reads_llm_free"),
    [(READ, False), (FOR_ACME, True), (Attribution(org="", feature="system.probe", kind=Kind.SYSTEM), True)],
)
async def test_anything_else_may_ask_the_model(attribution: Attribution, reads_llm_free: bool) -> None:
    with bind(Call(attribution=attribution)):
        result = await completion_of(ScriptedClient(answer()), reads_llm_free=reads_llm_free).complete(ASKED)
    assert result.text == "text"


@pytest.mark.parametrize(
    ("kind", "status", "detail"),
    [
        (FailureKind.STATUS, 503, {"status": 503}),
        (FailureKind.TIMEOUT, None, {}),
        (FailureKind.CONNECTION, None, {}),
        (FailureKind.MALFORMED, None, {}),
    ],
)
async def test_a_failure_tells_its_kind_and_how_often_it_was_tried(
    kind: FailureKind, status: int | None, detail: Mapping[str, int]
) -> None:
    failure = ProviderError("openai", kind, status=status, retry_after_s=9.0)
    failure.attempts = 4
    healths = Healths()
    with bind(Call(attribution=FOR_ACME)) as call, pytest.raises(ProviderFailed) as caught:
        await completion_of(ScriptedClient(failure), healths).complete(ASKED)
    assert caught.value.detail == {"provider": "openai", "kind": kind.value, "attempts": 4, **detail}
    assert caught.value.retry_after_s == 9.0
    assert healths.of("openai").failure is failure
    assert not call.usage


async def test_health_shows_a_failing_provider_until_it_answers_again() -> None:
    healths = Healths()
    status = LlmStatus(select("openai", None, {"openai"}), healths, require_real=False)
    client = ScriptedClient(ProviderError("openai", FailureKind.STATUS, status=401), answer())
    completion = completion_of(client, healths)
    with bind(Call(attribution=FOR_ACME)):
        with pytest.raises(ProviderFailed):
            await completion.complete(ASKED)
        report = await status.report()
        assert [problem.code for problem in report.problems] == ["provider_failing:openai"]
        assert report.ready
        await completion.complete(ASKED)
    assert (await status.report()).problems == ()


async def test_a_cancellation_is_no_failure_of_the_provider() -> None:
    healths = Healths()
    completion = completion_of(ScriptedClient(asyncio.CancelledError()), healths)
    with bind(Call(attribution=FOR_ACME)), pytest.raises(asyncio.CancelledError):
        await completion.complete(ASKED)
    assert healths.problems() == []


@pytest.mark.parametrize(("require_real", "severity"), [(False, "warning"), (True, "error")])
async def test_the_fake_says_so_and_more_loudly_where_a_real_one_is_required(require_real: bool, severity: str) -> None:
    report = await LlmStatus(select(None, None, set()), Healths(), require_real=require_real).report()
    assert [(problem.code, problem.severity) for problem in report.problems] == [("fake_llm", severity)]
    assert report.facts["provider"] == "fake"
    assert report.facts["model"] == "fake-echo-1"


async def test_a_missing_key_is_named() -> None:
    report = await LlmStatus(select("anthropic", None, set()), Healths(), require_real=False).report()
    assert [problem.code for problem in report.problems] == ["llm_key_missing", "fake_llm"]
    assert "ANTHROPIC_API_KEY" in report.problems[0].message


async def test_the_fake_echoes_within_its_cap_and_marks_its_answers() -> None:
    fake = FakeClient("fake-echo-1")
    one = await fake.complete("two words", "three more words", 3)
    assert one == await fake.complete("two words", "three more words", 3)
    assert one.text == "[fake-echo] three more"
    assert (one.input_tokens, one.output_tokens) == (5, 3)


async def test_the_cache_stands_before_the_model_where_a_prompt_asks_for_it() -> None:
    client, used = ScriptedClient(answer()), []

    class Remembering:
        def over(self, inner: LLMClient, use: CacheUse) -> LLMClient:
            used.append(use)
            return ScriptedClient(LLMResult("kept", "openai", "gpt-6-luna", from_cache=True))

    completion = Completion(
        models_of(client), orphans_of(FakeLedgerSink()), Gate(reads_llm_free=False), caching=Remembering()
    )
    use = CacheUse(enabled=True, window_keys=("k",))
    with bind(Call(attribution=FOR_ACME)):
        assert (await completion.complete(Prompt("", "a", cache=use))).text == "kept"
        assert (await completion.complete(ASKED)).text == "text"
    assert used == [use]


async def test_the_cache_answers_nobody_whom_the_gate_refuses() -> None:
    class Forbidden:
        def over(self, inner: LLMClient, use: CacheUse) -> LLMClient:
            raise AssertionError("the gate comes first")

    completion = Completion(
        models_of(ScriptedClient()), orphans_of(FakeLedgerSink()), Gate(reads_llm_free=True), caching=Forbidden()
    )
    with bind(Call(attribution=READ)), pytest.raises(ReadsLlmFree):
        await completion.complete(Prompt("", "a", cache=CacheUse(enabled=True)))
