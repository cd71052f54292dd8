"""The cache of answers: what is kept, for whom, how it is erased, and that it never fails a call."""

import asyncio
from datetime import datetime

import pytest

from loom_common.attribution import Attribution, Kind
from loom_common.call import Call, bind
from loom_common.clock import FakeClock
from loom_common.errors import BackendUnavailable
from loom_common.providers import FailureKind, ProviderError
from loom_llm.app.cache import AnswerCache
from loom_llm.app.usage import usage_of
from loom_llm.domain.cache_key import CacheUse
from loom_llm.domain.messages import DEFAULT_MAX_TOKENS, LLMResult, ResponseFormat
from loom_llm.domain.policy import TrafficPolicies
from loom_llm.store.answers import Found, KeptAnswer, Place
from loom_llm.store.answers_fake import FakeAnswers

ON = CacheUse(enabled=True)
ANSWER = LLMResult("Paris.", "openai", "gpt-6-luna-2026-09-22", input_tokens=1000, output_tokens=100)


class CountingModel:
    """Answers as told, counts calls; waits for `release` where one is given."""

    provider = "openai"
    model = "gpt-6-luna"

    def __init__(self, *answers: LLMResult | Exception, release: asyncio.Event | None = None) -> None:
        self.answers = list(answers) or [ANSWER]
        self.calls = 0
        self.begun = asyncio.Event()
        self.release = release

    async def complete(
        self,
        system: str,
        user: str,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        response_format: ResponseFormat | None = None,
    ) -> LLMResult:
        self.calls += 1
        answer = self.answers[min(self.calls, len(self.answers)) - 1]
        self.begun.set()
        if self.release is not None:
            await self.release.wait()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def chat(self, request: object) -> object:
        raise AssertionError("not asked here")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def table() -> FakeAnswers:
    return FakeAnswers()


@pytest.fixture(params=[False, True], ids=["replicas", "alone"])
def cache(table: FakeAnswers, clock: FakeClock, request: pytest.FixtureRequest) -> AnswerCache:
    return AnswerCache(table, TrafficPolicies(), clock, alone=request.param)


async def ask(
    cache: AnswerCache,
    model: CountingModel,
    use: CacheUse = ON,
    *,
    user: str = "Capital of France?",
    org: str = "acme",
    namespace: str = "team",
    max_tokens: int = 9,
    response_format: ResponseFormat | None = None,
) -> LLMResult:
    """Asks, and waits until what is to be kept is kept."""
    with bind(Call(attribution=Attribution(org, namespace, kind=Kind.REQUEST if org else Kind.SYSTEM))):
        client = cache.over(model, use)  # type: ignore[arg-type]  # no chat here
        result = await client.complete("Be brief.", user, max_tokens, response_format)
    await cache.aclose()
    return result


async def test_the_same_prompt_is_answered_from_the_cache_and_says_what_that_saved(cache: AnswerCache) -> None:
    model = CountingModel()
    first, second = await ask(cache, model), await ask(cache, model)
    assert (first.from_cache, second.from_cache, model.calls) == (False, True, 1)
    assert (second.text, second.model, second.input_tokens) == (first.text, first.model, first.input_tokens)
    spent, saved = usage_of(first), usage_of(second)
    assert spent.upstream_cost_usd == saved.llm_cache_saved_usd == pytest.approx((1000 * 0.10 + 100 * 0.50) / 1e6)
    assert (saved.upstream_cost_usd, saved.llm_calls, saved.input_tokens, saved.model) == (0, 0, 0, "")


async def test_whatever_an_answer_depends_on_makes_another_key(cache: AnswerCache) -> None:
    model = CountingModel()
    await ask(cache, model)
    await ask(cache, model, user="Capital of Spain?")
    await ask(cache, model, max_tokens=10)
    await ask(cache, model, response_format={"type": "json_object"})
    await ask(cache, model, org="globex")
    model.model = "gpt-6-sol"
    await ask(cache, model)
    assert model.calls == 6


@pytest.mark.parametrize(
    ("use", "org"),
    [
        (CacheUse(enabled=False), "acme"),
        (CacheUse(), "acme"),
        (CacheUse(traffic_class="people"), "acme"),
        (ON, ""),
    ],
)
async def test_without_leave_or_an_organisation_the_model_is_asked(
    cache: AnswerCache, table: FakeAnswers, use: CacheUse, org: str
) -> None:
    model = CountingModel()
    assert not (await ask(cache, model, use, org=org)).from_cache
    assert not (await ask(cache, model, use, org=org)).from_cache
    assert model.calls == 2
    assert table.kept == {}


async def test_a_traffic_class_may_switch_it_on(cache: AnswerCache) -> None:
    model, use = CountingModel(), CacheUse(traffic_class="bench")
    await ask(cache, model, use)
    assert (await ask(cache, model, use)).from_cache


@pytest.mark.parametrize(
    "answer",
    [
        LLMResult("", "openai", "gpt-6-luna"),
        LLMResult(" \n", "openai", "gpt-6-luna"),
        LLMResult("Par", "openai", "gpt-6-luna", stop_reason="length"),
        LLMResult("No.", "openai", "gpt-6-luna", stop_reason="refusal"),
        LLMResult("Paris.", "openai", "gpt-6-luna-mini"),
        LLMResult("Paris.", "anthropic", "claude-haiku-4-5", fell_back=True),
        LLMResult("Paris.", "openai", "gpt-6-luna-2026-09-22", fell_back=True),
    ],
)
async def test_an_empty_cut_or_refused_answer_and_one_of_another_model_is_not_kept(
    cache: AnswerCache, answer: LLMResult
) -> None:
    model = CountingModel(answer)
    await ask(cache, model)
    assert not (await ask(cache, model)).from_cache
    assert model.calls == 2


async def test_an_answer_lasts_seven_days(cache: AnswerCache, clock: FakeClock) -> None:
    model = CountingModel()
    await ask(cache, model)
    clock.advance(7 * 86_400 - 1)
    assert (await ask(cache, model)).from_cache
    clock.advance(1)
    assert not (await ask(cache, model)).from_cache


QUOTING = CacheUse(enabled=True, window_keys=("k1", "k2"), tags=("consolidated", "src:k9"))


@pytest.mark.parametrize(
    ("org", "namespace", "keys", "tags", "gone"),
    [
        ("acme", "team", ["k2"], [], True),
        ("acme", "team", [], ["src:k9"], True),
        ("acme", "team", ["k9"], ["src:k1"], False),
        ("acme", "other", ["k1"], [], False),
        ("globex", "team", ["k1"], ["consolidated"], False),
    ],
)
async def test_an_erasure_by_key_or_tag_takes_what_carried_it_in_that_namespace_alone(
    cache: AnswerCache, table: FakeAnswers, org: str, namespace: str, keys: list[str], tags: list[str], gone: bool
) -> None:
    model = CountingModel()
    await ask(cache, model, QUOTING)
    await ask(cache, model, user="unrelated")
    assert await cache.erase(org, namespace, keys, tags) == int(gone)
    assert len(table.kept) == 2 - int(gone)
    assert (await ask(cache, model, QUOTING)).from_cache is not gone


async def test_a_prompt_over_several_namespaces_is_erased_through_each(cache: AnswerCache) -> None:
    use = CacheUse(enabled=True, window_keys=("k1",), namespaces=("team", "home"))
    await ask(cache, CountingModel(), use)
    assert await cache.erase("acme", "home", ["k1"], []) == 1


async def test_no_name_of_an_erased_memory_is_kept_by_its_erasure(cache: AnswerCache, table: FakeAnswers) -> None:
    await cache.erase("acme", "team", ["secret-key"], ["src:secret-key"])
    assert len(table.erasures) == 2
    assert "secret" not in str(table.erasures)


async def test_an_answer_on_its_way_when_its_memory_is_erased_is_given_and_not_kept(
    cache: AnswerCache, table: FakeAnswers
) -> None:
    model = CountingModel(release=asyncio.Event())
    asked = asyncio.create_task(ask(cache, model, QUOTING))
    await model.begun.wait()
    assert await cache.erase("acme", "team", ["k1"], []) == 0
    assert model.release is not None
    model.release.set()
    assert (await asked).text == "Paris."
    assert table.kept == {}


async def test_an_erasure_long_before_a_call_does_not_keep_its_answer_out(cache: AnswerCache, clock: FakeClock) -> None:
    model = CountingModel()
    await cache.erase("acme", "team", ["k1"], [])
    await ask(cache, model, QUOTING)
    assert not (await ask(cache, model, QUOTING)).from_cache  # as soon as this after, clocks may be apart
    clock.advance(61)
    await ask(cache, model, QUOTING)
    assert (await ask(cache, model, QUOTING)).from_cache


class ErasedWhileWriting(FakeAnswers):
    """Another replica erases between this one's look and its write: its removal finds nothing yet."""

    async def keep(self, answer: KeptAnswer) -> None:
        other = AnswerCache(self, TrafficPolicies(), FakeClock())
        assert await other.erase("acme", "team", ["k1"], []) == 0
        await super().keep(answer)


async def test_an_erasure_by_another_replica_between_look_and_write_wins(clock: FakeClock) -> None:
    table = ErasedWhileWriting()
    await ask(AnswerCache(table, TrafficPolicies(), clock), CountingModel(), QUOTING)
    assert table.kept == {}


async def until_all_wait() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_callers_of_one_organisation_share_a_call_on_its_way_and_others_do_not(cache: AnswerCache) -> None:
    model = CountingModel(release=asyncio.Event())
    asked = [asyncio.create_task(ask(cache, model, org=org)) for org in ("acme", "acme", "acme", "globex")]
    await until_all_wait()
    assert model.release is not None
    model.release.set()
    results = await asyncio.gather(*asked)
    assert [result.from_cache for result in results] == [False, True, True, False]
    assert model.calls == 2


async def test_where_the_first_call_fails_whoever_waited_asks_for_itself(cache: AnswerCache) -> None:
    model = CountingModel(ProviderError("openai", FailureKind.TIMEOUT), ANSWER, release=asyncio.Event())
    first, second = (asyncio.create_task(ask(cache, model)) for _ in range(2))
    await until_all_wait()
    assert model.release is not None
    model.release.set()
    with pytest.raises(ProviderError):
        await first
    assert not (await second).from_cache
    assert model.calls == 2


async def test_a_database_that_is_away_costs_one_look_and_no_call_and_an_erasure_says_so(
    cache: AnswerCache, table: FakeAnswers, clock: FakeClock
) -> None:
    table.away, model = True, CountingModel()
    assert (await ask(cache, model)).text == (await ask(cache, model)).text == "Paris."
    assert (table.reads, model.calls) == (1, 2)
    clock.advance(6)
    await ask(cache, model)
    assert table.reads == 2
    with pytest.raises(BackendUnavailable):
        await cache.erase("acme", "team", ["k1"], [])


@pytest.mark.parametrize(("alone", "reads"), [(True, 1), (False, 3)])
async def test_only_a_process_that_is_alone_holds_answers_in_memory(
    table: FakeAnswers, clock: FakeClock, alone: bool, reads: int
) -> None:
    cache, model = AnswerCache(table, TrafficPolicies(), clock, alone=alone), CountingModel()
    for _ in range(3):
        await ask(cache, model, QUOTING)
    assert (table.reads, model.calls) == (reads, 1)


class ErasedWhileReading(FakeAnswers):
    """An erasure comes while a read is on its way, and is done before the read comes back."""

    cache: AnswerCache | None = None

    async def read(self, place: Place, now: datetime, timeout_s: float) -> Found | None:
        found = await super().read(place, now, timeout_s)
        if found is not None and self.cache is not None:
            cache, self.cache = self.cache, None
            assert await cache.erase("acme", "team", ["k1"], []) == 1
        return found


async def test_what_was_read_before_an_erasure_is_not_held_after_it(clock: FakeClock) -> None:
    table, model = ErasedWhileReading(), CountingModel()
    await ask(AnswerCache(table, TrafficPolicies(), clock), model, QUOTING)
    table.cache = reading = AnswerCache(table, TrafficPolicies(), clock, alone=True)
    assert (await ask(reading, model, QUOTING)).from_cache
    assert not (await ask(reading, model, QUOTING)).from_cache
