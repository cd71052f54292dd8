"""The gates before a model, what a failure tells, and what a call costs."""

import asyncio
from collections.abc import Mapping

import pytest

from loom_common.attribution import Attribution, Kind
from loom_common.call import Call, bind
from loom_common.errors import ModelCallUnattributed, ProviderFailed, ReadsLlmFree
from loom_common.ledger import FakeLedgerSink
from loom_common.usage import Usage
from loom_llm.app.completion import Completion
from loom_llm.app.health import ProviderHealth
from loom_llm.app.orphans import Orphans
from loom_llm.app.status import LlmStatus
from loom_llm.domain.client import DEFAULT_MAX_TOKENS, LLMResult, ResponseFormat
from loom_llm.domain.failures import FailureKind, ProviderError
from loom_llm.domain.selection import select
from loom_llm.providers.fake import FakeClient

FOR_ACME = Attribution(org="acme", feature="memory.ask")
READ = Attribution(org="acme", feature="memory.search", read_only=True)


class ScriptedClient:
    """Answers or fails as told; counts calls."""

    provider = "openai"
    model = "gpt-6-luna"

    def __init__(self, *outcomes: LLMResult | BaseException) -> None:
        self.outcomes = list(outcomes)
        self.calls = 0

    async def complete(
        self,
        system: str,
        user: str,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        response_format: ResponseFormat | None = None,
    ) -> LLMResult:
        self.calls += 1
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


def answer(**counts: int) -> LLMResult:
    return LLMResult("text", "openai", "gpt-6-luna-2026", **counts)


async def test_what_a_call_spent_lands_on_the_running_call() -> None:
    client = ScriptedClient(answer(input_tokens=11, output_tokens=7, cached_input_tokens=5), answer(input_tokens=1))
    completion = Completion(client, ProviderHealth(), Orphans(FakeLedgerSink()), reads_llm_free=False)
    with bind(Call(attribution=FOR_ACME)) as call:
        await completion.complete("", "a")
        await completion.complete("", "b")
    assert call.usage == Usage(
        input_tokens=12, output_tokens=7, cached_tokens=5, llm_calls=2, model="gpt-6-luna-2026", model_tokens=19
    )


async def test_an_answer_from_looms_own_cache_spends_nothing() -> None:
    cached = LLMResult("text", "openai", "gpt-6-luna", input_tokens=11, from_cache=True)
    with bind(Call(attribution=FOR_ACME)) as call:
        await Completion(
            ScriptedClient(cached), ProviderHealth(), Orphans(FakeLedgerSink()), reads_llm_free=False
        ).complete("", "a")
    assert not call.usage


async def test_a_call_that_names_nobody_is_refused_before_the_provider() -> None:
    client = ScriptedClient(answer())
    with bind(Call()), pytest.raises(ModelCallUnattributed):
        await Completion(client, ProviderHealth(), Orphans(FakeLedgerSink()), reads_llm_free=False).complete("", "a")
    assert client.calls == 0


async def test_a_read_is_refused_where_reads_are_free_of_models() -> None:
    client = ScriptedClient(answer())
    with bind(Call(attribution=READ)), pytest.raises(ReadsLlmFree) as caught:
        await Completion(client, ProviderHealth(), Orphans(FakeLedgerSink()), reads_llm_free=True).complete("", "a")
    assert caught.value.detail == {"setting": "LOOM_READS_LLM_FREE"}
    assert client.calls == 0


@pytest.mark.parametrize(
    ("attribution", "reads_llm_free"),
    [(READ, False), (FOR_ACME, True), (Attribution(org="", feature="system.probe", kind=Kind.SYSTEM), True)],
)
async def test_anything_else_may_ask_the_model(attribution: Attribution, reads_llm_free: bool) -> None:
    with bind(Call(attribution=attribution)):
        result = await Completion(
            ScriptedClient(answer()), ProviderHealth(), Orphans(FakeLedgerSink()), reads_llm_free=reads_llm_free
        ).complete("", "a")
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
    health = ProviderHealth()
    with bind(Call(attribution=FOR_ACME)) as call, pytest.raises(ProviderFailed) as caught:
        await Completion(ScriptedClient(failure), health, Orphans(FakeLedgerSink()), reads_llm_free=False).complete(
            "", "a"
        )
    assert caught.value.detail == {"provider": "openai", "kind": kind.value, "attempts": 4, **detail}
    assert caught.value.retry_after_s == 9.0
    assert health.failure is failure
    assert not call.usage


async def test_health_shows_a_failing_provider_until_it_answers_again() -> None:
    health = ProviderHealth()
    status = LlmStatus(select("openai", None, {"openai"}), health, require_real=False)
    client = ScriptedClient(ProviderError("openai", FailureKind.STATUS, status=401), answer())
    completion = Completion(client, health, Orphans(FakeLedgerSink()), reads_llm_free=False)
    with bind(Call(attribution=FOR_ACME)):
        with pytest.raises(ProviderFailed):
            await completion.complete("", "a")
        report = await status.report()
        assert [problem.code for problem in report.problems] == ["provider_failing:openai"]
        assert report.ready
        await completion.complete("", "a")
    assert (await status.report()).problems == ()


async def test_a_cancellation_is_no_failure_of_the_provider() -> None:
    health = ProviderHealth()
    completion = Completion(
        ScriptedClient(asyncio.CancelledError()), health, Orphans(FakeLedgerSink()), reads_llm_free=False
    )
    with bind(Call(attribution=FOR_ACME)), pytest.raises(asyncio.CancelledError):
        await completion.complete("", "a")
    assert health.failure is None


@pytest.mark.parametrize(("require_real", "severity"), [(False, "warning"), (True, "error")])
async def test_the_fake_says_so_and_more_loudly_where_a_real_one_is_required(require_real: bool, severity: str) -> None:
    report = await LlmStatus(select(None, None, set()), ProviderHealth(), require_real=require_real).report()
    assert [(problem.code, problem.severity) for problem in report.problems] == [("fake_llm", severity)]
    assert report.facts["provider"] == "fake"
    assert report.facts["model"] == "fake-echo-1"


async def test_a_missing_key_is_named() -> None:
    report = await LlmStatus(select("anthropic", None, set()), ProviderHealth(), require_real=False).report()
    assert [problem.code for problem in report.problems] == ["llm_key_missing", "fake_llm"]
    assert "ANTHROPIC_API_KEY" in report.problems[0].message


async def test_the_fake_echoes_within_its_cap_and_marks_its_answers() -> None:
    fake = FakeClient("fake-echo-1")
    one = await fake.complete("two words", "three more words", 3)
    assert one == await fake.complete("two words", "three more words", 3)
    assert one.text == "[fake-echo] three more"
    assert (one.input_tokens, one.output_tokens) == (5, 3)
