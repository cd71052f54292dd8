"""What a search may be asked for, over a real engine; one database for the module, a namespace for each test."""

import itertools
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio
from support.memory import MemoryHarness, memory_over

from loom_common.auth.claims import Claims, NamespaceGrant, Role
from loom_common.auth.directory import FakeDirectory, NamespaceInfo
from loom_common.call import Call, Scope, bind
from loom_common.clickhouse import ClickHouseSettings
from loom_common.clickhouse.embedded import EmbeddedClickHouse
from loom_common.clickhouse.engine import EmbeddedEngine
from loom_common.clock import FakeClock
from loom_common.errors import InvalidArgument, LoomError, ProviderFailed
from loom_memory.app.drafts import Draft
from loom_memory.app.llm_fake import FakeLlm
from loom_memory.app.search import PAGE_EXPIRED, SearchQuery
from loom_memory.app.search.answering import Answer, Presentation
from loom_memory.app.search.namespaces import NamespaceScope
from loom_memory.app.search.pages import TTL
from loom_memory.app.search.replay import ReplayPlan, Way
from loom_memory.domain.memory import Content, Filter, Identity, SearchResult
from loom_memory.domain.narrowing import Narrowing, Span
from loom_memory.domain.recipes import Recipe, Weights
from loom_memory.settings import MemorySettings
from loom_memory.store.search_traces import SearchTrace

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Near the present: the store removes by its own clock what has passed its time.
START = datetime.now(UTC).replace(microsecond=0)
_NUMBERS = itertools.count(1)


@dataclass(slots=True)
class Asking:
    """Memory with a clock and a model of the test's, asked in one namespace."""

    harness: MemoryHarness
    clock: FakeClock
    llm: FakeLlm
    directory: FakeDirectory
    scope: Scope

    async def tell(self, key: str, value: str, **more: object) -> None:
        outcome = await self.harness.parts.writer.set_many(self.scope, [draft(key, value, **more)], "human:test")
        assert not isinstance(outcome[0], LoomError)

    async def ask(self, text: str, **more: object) -> SearchResult:
        made: dict[str, object] = {"wanted": Filter(), "top_k": 10, **more}
        return await self.harness.parts.search.search(self.scope, SearchQuery(text, **made))  # type: ignore[arg-type]  # fields by name

    async def keys(self, text: str, **more: object) -> list[str]:
        return [hit.memory.identity.key for hit in (await self.ask(text, **more)).hits if not hit.low]

    async def answer(self, query: SearchQuery, look: Presentation, subject: str = "sa:bot") -> Answer:
        claims = Claims(subject, "acme", (NamespaceGrant(self.scope.namespace, Role.VIEWER),), "t", 0, 1)
        call = Call("memory.search", f"r{next(_NUMBERS)}", claims=claims, run_id="run-1", scope=self.scope)
        with bind(call):
            return await self.harness.parts.searches.answering.answer(self.scope, query, NamespaceScope.THIS, look)


def draft(key: str, value: str, **more: object) -> Draft:
    user, session = more.pop("user_id", ""), more.pop("session_id", "")
    content = Content(value, **more)  # type: ignore[arg-type]  # any field of Content
    return Draft(Identity(key, str(user), str(session)), content, verbatim=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_memory(clickhouse_engine: EmbeddedEngine) -> AsyncIterator[Asking]:
    ch = EmbeddedClickHouse(clickhouse_engine, "search_features", ClickHouseSettings(pool_size=2))
    await ch.start()
    clock, llm, directory = FakeClock(START), FakeLlm(), FakeDirectory()
    harness = await memory_over(ch, clock=clock, llm=llm, directory=directory)
    yield Asking(harness, clock, llm, directory, Scope("acme", "none"))
    await harness.parts.workers.close()
    await ch.command("DROP DATABASE search_features SYNC")
    await ch.close()


@pytest.fixture
def asking(module_memory: Asking) -> Asking:
    """The module's memory in a namespace of its own, with a model that was asked nothing."""
    name = f"n{next(_NUMBERS)}"
    module_memory.directory.add(NamespaceInfo("acme", name))
    module_memory.llm.asked.clear()
    module_memory.llm.scores.clear()
    module_memory.llm.rule = lambda asked: "{}"
    module_memory.clock.advance(60)
    return replace(module_memory, scope=Scope("acme", name))


def shape(result: SearchResult) -> list[tuple[str, int, float]]:
    return [(hit.memory.identity.key, hit.memory.revision, round(hit.score, 5)) for hit in result.hits]


async def test_as_of_answers_as_the_search_did_then(asking: Asking) -> None:
    chance = random.Random(7)
    words = ("coffee", "violin", "garden", "ledger", "Lyon", "tuesday", "automobile", "physician")
    questions = ("coffee in Lyon", "the physician of the garden")
    asked: list[tuple[datetime, str, list[tuple[str, int, float]]]] = []
    for step in range(7):
        key = f"k{chance.randrange(4)}"
        session = "s" if key in ("k1", "k2") else ""
        told = " ".join(chance.choices(words, k=4))
        await asking.tell(key, f"{told} {step}", session_id=session, speaker="Ana" if session else "")
        asking.clock.advance(30)
        if step % 3 == 0:
            asked += [(asking.clock.now(), question, shape(await asking.ask(question))) for question in questions]
        asking.clock.advance(30)
    assert any(found for _, _, found in asked)
    for at, question, then in asked:
        assert shape(await asking.ask(question, as_of=at)) == then


async def test_what_was_deleted_since_is_gone_from_every_moment(asking: Asking) -> None:
    await asking.tell("a", "coffee every morning")
    await asking.tell("b", "coffee at night")
    before = asking.clock.now()
    asking.clock.advance(60)
    await asking.tell("b", "tea at night")
    await asking.harness.parts.writer.delete(asking.scope, Identity("a"), "human:test", expected_version=None)
    asking.clock.advance(60)
    assert await asking.keys("coffee", as_of=before) == ["b"]
    assert (await asking.ask("coffee", as_of=before - timedelta(days=1))).abstain_code == "empty_namespace"


async def test_pages_neither_repeat_nor_skip_and_leave_out_what_was_deleted(asking: Asking) -> None:
    drafts = [draft(f"k{number:02}", f"note {number} about violin lessons") for number in range(47)]
    await asking.harness.parts.writer.set_many(asking.scope, drafts, "human:test")
    query = SearchQuery("violin lessons", Filter(), 10)
    answer = await asking.answer(query, Presentation(paging=True))
    assert answer.result.candidates_total == 47
    seen = [hit.hit.memory.identity.key for hit in answer.hits]
    gone = answer.result.kept[15].identity
    await asking.harness.parts.writer.delete(asking.scope, gone, "human:test", expected_version=None)
    while answer.next_page:
        answer = await asking.answer(query, Presentation(page=answer.next_page))
        assert answer.result.candidates_total == 47
        seen += [hit.hit.memory.identity.key for hit in answer.hits]
    assert len(seen) == len(set(seen)) == 46
    assert set(seen) == {f"k{number:02}" for number in range(47)} - {gone.key}


async def test_pages_of_a_moment_show_what_was_then(asking: Asking) -> None:
    for number in range(4):
        await asking.tell(f"k{number}", f"violin lesson {number}")
    then = asking.clock.now()
    asking.clock.advance(60)
    await asking.tell("k0", "something else")
    await asking.tell("k3", "something else")
    query = SearchQuery("violin lesson", Filter(), 2, as_of=then)
    first = await asking.answer(query, Presentation(paging=True))
    second = await asking.answer(query, Presentation(page=first.next_page))
    assert sorted(hit.text for hit in [*first.hits, *second.hits]) == [f"violin lesson {number}" for number in range(4)]


async def test_a_page_is_its_callers_own_and_passes(asking: Asking) -> None:
    for number in range(4):
        await asking.tell(f"k{number}", f"note {number} about violin lessons")
    query = SearchQuery("violin lessons", Filter(), 2)
    page = (await asking.answer(query, Presentation(paging=True))).next_page
    other = await asking.answer(query, Presentation(page=page), subject="sa:other")
    assert (other.result.abstain_code, list(other.hits)) == (PAGE_EXPIRED, [])
    assert len((await asking.answer(query, Presentation(page=page))).hits) == 2
    asking.clock.advance(TTL.total_seconds())
    assert (await asking.answer(query, Presentation(page=page))).result.abstain_code == PAGE_EXPIRED
    with pytest.raises(InvalidArgument):
        await asking.answer(query, Presentation(page="not-a-handle"))


async def test_pages_and_traces_hold_nothing_of_namespaces_that_their_reader_may_not_read(asking: Asking) -> None:
    other = replace(asking, scope=Scope("acme", f"{asking.scope.namespace}-secret"))
    asking.directory.add(NamespaceInfo("acme", other.scope.namespace, restricted=True))
    for number in range(3):
        await asking.tell(f"k{number}", f"note {number} about violin lessons")
        await other.tell(f"s{number}", f"secret {number} about violin lessons")
    query = SearchQuery("violin lessons", Filter(), 1)
    names = (asking.scope.namespace, other.scope.namespace)

    async def answer(look: Presentation, *granted: str) -> Answer:
        claims = Claims("sa:bot", "acme", tuple(NamespaceGrant(name, Role.VIEWER) for name in granted), "t", 0, 1)
        with bind(Call("memory.search", f"r{next(_NUMBERS)}", claims=claims, scope=asking.scope)):
            answering = asking.harness.parts.searches.answering
            return await answering.answer(asking.scope, query, NamespaceScope.ALL_MINE, look)

    async def pages(*granted: str) -> list[str]:
        page, keys = first.next_page, []
        while page:
            read = await answer(Presentation(page=page), *granted)
            keys += [hit.hit.memory.identity.key for hit in read.hits]
            page = read.next_page
        return sorted([*keys, *(hit.hit.memory.identity.key for hit in first.hits)])

    first = await answer(Presentation(paging=True), *names)
    assert await pages(*names) == ["k0", "k1", "k2", "s0", "s1", "s2"]
    assert {key for key in await pages(names[0]) if key.startswith("s")} <= {
        hit.hit.memory.identity.key for hit in first.hits
    }
    assert {key for key in await pages(names[0], "*") if key.startswith("s")} <= {
        hit.hit.memory.identity.key for hit in first.hits
    }
    query = replace(query, top_k=6)
    assert len((await answer(Presentation(), *names)).hits) == 6
    await asking.harness.parts.searches.traces.rows.flush()
    found = await asking.harness.ch.query(
        "SELECT found FROM search_traces WHERE namespace = {n:String} ORDER BY length(found) DESC LIMIT 1",
        {"n": asking.scope.namespace},
    )
    assert sorted(identity[0] for identity in found.scalar()) == ["k0", "k1", "k2"]


async def test_filters_keep_what_they_say(asking: Asking) -> None:
    await asking.tell("early", "violin recital", event_time=START - timedelta(days=9), speaker="Ana", source="chat")
    await asking.tell(
        "late", "violin recital of old", event_time=START - timedelta(days=1), importance=0.9, pinned=True
    )
    for more, expected in [
        (Narrowing(), {"early", "late"}),
        (Narrowing(speakers=("Ana",)), {"early"}),
        (Narrowing(sources=("chat",)), {"early"}),
        (Narrowing(happened=Span(since=START - timedelta(days=2))), {"late"}),
        (Narrowing(happened=Span(until=START - timedelta(days=2))), {"early"}),
        (Narrowing(updated=Span(since=asking.clock.now() + timedelta(seconds=1))), set()),
        (Narrowing(min_importance=0.8), {"late"}),
        (Narrowing(pinned=False), {"early"}),
        (Narrowing(sensitivities=("",)), {"early", "late"}),
        (Narrowing(sensitivities=("secret",)), set()),
    ]:
        assert set(await asking.keys("violin recital", wanted=Filter(more=more))) == expected, more


async def test_a_time_that_the_question_names_finds_what_happened_then(asking: Asking) -> None:
    now = asking.clock.now()
    await asking.tell("then", "dinner with the neighbours", event_time=now - timedelta(days=7))
    await asking.tell("now", "dinner with the colleagues", event_time=now)
    assert await asking.keys("What happened last week?") == ["then"]
    assert (await asking.keys("dinner last week", recipe=Recipe.TEMPORAL))[0] == "then"
    told = await asking.ask("What happened last week?", explain=True)
    assert told.explanation is not None
    assert told.explanation.times[0].holds(now - timedelta(days=7))
    # Counted from the moment that the question is of.
    later = now + timedelta(days=21)
    assert await asking.keys("What happened three weeks ago?", asked_at=later) == ["now"]


async def test_a_key_that_is_asked_for_comes_first_and_so_does_a_tag(asking: Asking) -> None:
    await asking.tell("deploy/window", "Tuesdays after ten")
    await asking.tell("other", "the deploy window of the deploy team is a window", tags=("release",))
    assert (await asking.keys("deploy/window"))[0] == "deploy/window"
    assert await asking.keys("#release") == ["other"]


async def test_superseded_memories_are_shown_where_they_are_wanted_and_last(asking: Asking) -> None:
    await asking.tell("old", "works at Acme as a baker")
    before = asking.clock.now()
    await asking.harness.ch.command(
        "ALTER TABLE memory UPDATE invalid_at = {at:DateTime64(3, 'UTC')} WHERE namespace = {namespace:String}",
        {"at": before, "namespace": asking.scope.namespace},
    )
    await asking.tell("new", "works at Bakery as a baker")
    sql = Filter(more=Narrowing(min_importance=0.0))  # read from the store itself, where the test wrote
    assert await asking.keys("where does she work as a baker", wanted=sql) == ["new"]
    assert await asking.keys("where does she work as a baker", wanted=sql, superseded=True) == ["new", "old"]


async def test_facets_count_the_matches_and_floors_withhold(asking: Asking) -> None:
    for number in range(12):
        await asking.tell(f"k{number}", f"violin lesson {number}", kind="fact" if number % 2 else "event", tags=("m",))
    result = await asking.ask("violin lesson", top_k=3, facets=True, wide=True)
    counts = {(facet.name, facet.value): facet.count for facet in result.facets}
    assert (counts["kind", "fact"], counts["kind", "event"], counts["tag", "m"]) == (6, 6, 12)
    assert result.candidates_total == 12
    strict = await asking.ask("violin lesson", min_score=1.0)
    assert (strict.hits, strict.abstain_code, strict.withheld) == ([], "below_floor", 12)


async def test_an_explained_place_is_the_sum_of_its_parts(asking: Asking) -> None:
    for number in range(6):
        await asking.tell(f"k{number}", f"violin lesson {number}", importance=number / 5, pinned=number == 2)
    result = await asking.ask("violin lesson", explain=True, weights=Weights(lexical=2.0))
    beside = {"cosine", "lexical", "bm25"}
    orders = [sum(value for name, value in hit.components.items() if name not in beside) for hit in result.hits]
    assert orders == sorted(orders, reverse=True)
    assert any("pin" in hit.components for hit in result.hits)
    assert result.explanation is not None
    assert result.explanation.legs["lexical"] == 6


async def test_helpers_run_where_they_are_asked_for_and_never_otherwise(asking: Asking) -> None:
    await asking.tell("k", "the automobile is parked in the garage")
    for more in ({}, {"recipe": Recipe.FAST, "hyde": True}, {"fast": True, "recipe": Recipe.QUALITY}):
        await asking.ask("where did she leave it", **more)
        assert asking.llm.asked == []
    asking.llm.rule = lambda asked: "The vehicle is parked in the garage."
    found = await asking.ask("where did she leave it", hyde=True, explain=True)
    assert [hit.memory.identity.key for hit in found.hits if not hit.low] == ["k"]
    assert found.explanation is not None
    assert found.explanation.wordings == ("The vehicle is parked in the garage.",)
    assert len(asking.llm.asked) == 1


async def test_a_helper_that_fails_leaves_the_search_as_it_was(asking: Asking) -> None:
    await asking.tell("k", "violin lessons on tuesdays")
    plain = shape(await asking.ask("piano"))
    failing: list[LoomError | str] = [ProviderFailed("down"), "no JSON at all", '{"query": 7}']
    for answer in failing:
        asking.llm.rule = lambda asked, answer=answer: answer  # type: ignore[misc]  # bound early
        found = await asking.ask("piano", recipe=Recipe.QUALITY, explain=True)
        if isinstance(answer, LoomError):
            assert shape(found) == plain
            assert found.explanation is not None
            assert any(note.outcome == "failed: PROVIDER_FAILED" for note in found.explanation.helpers)
    asking.llm.asked.clear()
    asking.llm.rule = lambda asked: '{"query": "something else", "answered": false}'
    await asking.ask("piano", recipe=Recipe.QUALITY)
    assert len(asking.llm.asked) <= 2


async def test_a_slip_of_the_pen_is_read_as_what_is_stored(asking: Asking) -> None:
    await asking.tell("k", "the restaurant near the river")
    await asking.tell("other", "violin lessons on tuesdays")
    found = await asking.ask("restaraunt river", explain=True)
    assert found.explanation is not None
    assert "restaurant river" in found.explanation.wordings
    assert found.hits[0].memory.identity.key == "k"


async def test_a_reranker_orders_where_it_is_named_or_the_namespace_has_one(asking: Asking) -> None:
    await asking.tell("a", "violin lessons on tuesdays")
    await asking.tell("b", "violin on mondays")
    plain = await asking.keys("violin lessons tuesdays")
    assert plain[0] == "a"
    asking.llm.scores = {"violin on mondays": 0.9, "violin lessons on tuesdays": 0.1}
    found = await asking.ask("violin lessons tuesdays", rerank="builtin:cohere", explain=True)
    assert [hit.memory.identity.key for hit in found.hits][:2] == ["b", "a"]
    assert found.hits[0].components["rerank"] == 0.9
    assert (await asking.keys("violin lessons tuesdays", rerank="builtin:openai", fast=True))[0] == "a"
    asking.directory.add(replace(NamespaceInfo("acme", asking.scope.namespace), rerank_endpoint="own"))
    best = next(hit.similarity for hit in found.hits if hit.memory.identity.key == "a")
    assert best is not None
    assert best > MemorySettings().rerank_skip_above
    assert (await asking.keys("violin lessons tuesdays"))[0] == "a", "near enough: not reranked"
    assert (await asking.keys("violin the"))[0] == "b"


async def test_reads_are_recorded_by_run_with_their_places(asking: Asking) -> None:
    await asking.tell("k", "violin lessons")
    await asking.answer(SearchQuery("violin", Filter(), 5), Presentation())
    exposures = asking.harness.parts.searches.exposures
    shown = await exposures.of_run("acme", asking.scope.namespace, "run-1", "sa:bot")
    assert [(each.identity.key, each.revision, each.op, each.rank) for each in shown] == [("k", 1, "memory.search", 1)]
    assert shown[0].score > 0
    assert await exposures.of_run("acme", asking.scope.namespace, "run-1", "sa:other") == []
    assert await exposures.of_run("other", asking.scope.namespace, "run-1", "") == []
    recall = asking.harness.parts.searches.recall
    await recall.read(asking.scope)
    assert (await recall.uses(asking.scope))[Identity("k")].recalled == 1


async def test_a_replay_tells_what_moved_and_leaves_no_trace(asking: Asking) -> None:
    asked_at = asking.clock.now()
    for number in range(5):
        await asking.tell(f"k{number}", f"violin lesson {number} " + "in the house " * number)
    query = SearchQuery("violin lesson house", Filter(), 5)
    for _ in range(2):
        await asking.answer(query, Presentation())
    traces = asking.harness.parts.searches.traces
    await traces.rows.flush()
    asking.clock.advance(3600)
    await asking.tell("new", "violin lesson house")
    replaying = asking.harness.parts.searches.replaying

    def again(trace: SearchTrace) -> SearchQuery:
        return SearchQuery(trace.query, Filter(), 5)

    async def replay(after: Way, *, as_recorded: bool = False) -> tuple[list[str], float]:
        plan = ReplayPlan("acme", asking.scope.namespace, 30, 10, 5, Way(), after, as_recorded=as_recorded)
        reports = [report async for report in replaying.replay(plan, again)]
        assert (reports[0].total, reports[-1].done) == (1, 1)
        sums, searched = reports[-1].sums, reports[1].replayed
        assert sums is not None
        assert searched is not None
        return [change.identity.key for change in searched.found.changes if change.kind == "entered"], sums.mean_overlap

    assert await replay(Way()) == ([], 1.0)
    assert (await replay(Way(), as_recorded=True))[0] == ["new"]
    assert (await replay(Way(as_of=asked_at + timedelta(seconds=1))))[1] < 1
    served = await asking.harness.embedding.served_model()
    await replay(Way(recipe=Recipe.VERBATIM, embedder=f"prefix:16:{served.name}"))
    with pytest.raises(InvalidArgument):
        await replay(Way(embedder="prefix:16:another"))
    exposures = asking.harness.parts.searches.exposures
    assert len(await exposures.of_run("acme", asking.scope.namespace, "run-1", "")) == 10


async def test_a_restricted_namespace_keeps_no_questions(asking: Asking) -> None:
    asking.directory.add(NamespaceInfo("acme", asking.scope.namespace, restricted=True))
    await asking.tell("k", "violin lessons")
    await asking.answer(SearchQuery("violin", Filter(), 5), Presentation())
    await asking.harness.parts.searches.traces.rows.flush()
    rows = await asking.harness.ch.query(
        "SELECT count() FROM search_traces WHERE namespace = {n:String}", {"n": asking.scope.namespace}
    )
    assert rows.scalar() == 0


async def test_a_sampled_search_is_judged_afterwards(asking: Asking) -> None:
    await asking.tell("k", "violin lessons")
    settings = MemorySettings(LOOM_RETRIEVAL_JUDGE_SAMPLE_RATE=1.0)
    harness = await memory_over(asking.harness.ch, clock=asking.clock, llm=asking.llm, settings=settings)
    judged = replace(asking, harness=harness)
    asking.llm.rule = lambda asked: '{"relevant": [1, 99, "x"], "answered": true}'
    await judged.answer(SearchQuery("violin", Filter(), 5), Presentation())
    await harness.parts.searches.judge.drain()
    rows = await harness.ch.query(
        "SELECT hits, relevant, first_relevant, answered FROM retrieval_judgements WHERE namespace = {n:String}",
        {"n": asking.scope.namespace},
    )
    assert rows.rows == [(1, 1, 1, True)]
