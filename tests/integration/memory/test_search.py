import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from support.memory import MemoryHarness, memory_over

from loom_common.clickhouse import ClickHouse
from loom_common.clock import FakeClock
from loom_common.errors import BackendUnavailable, EmbedTimeout, InvalidArgument
from loom_memory.app.search import SearchMode
from loom_memory.domain.memory import Filter, Identity
from loom_memory.store import memories
from loom_memory.store.memories import MemoryRepository, Statistics

TOPICS = ("garden roses", "tax ledger", "mountain hiking", "kernel scheduler", "violin lessons")


async def test_the_matching_note_is_first_and_has_the_highest_score(any_memory: MemoryHarness) -> None:
    await any_memory.set("coffee", "drinks coffee every morning")
    await any_memory.set("reading", "reads novels at night")
    hits = (await any_memory.search("coffee")).hits
    assert hits[0].memory.identity.key == "coffee"
    assert all(hit.score < hits[0].score and hit.low for hit in hits[1:])


@pytest.mark.parametrize("mode", list(SearchMode))
async def test_every_mode_finds_and_scores_on_one_scale(memory: MemoryHarness, mode: SearchMode) -> None:
    await memory.set("k", "the automobile needs new tyres")
    await memory.set("other", "violin lessons on tuesdays")
    hits = (await memory.search("automobile tyres", mode=mode)).hits
    assert hits[0].memory.identity.key == "k"
    assert 0.25 <= hits[0].score <= 1
    assert (hits[0].similarity is None) == (mode is SearchMode.LEXICAL)


async def test_a_code_among_two_hundred_notes_of_one_topic_is_first(any_memory: MemoryHarness) -> None:
    await any_memory.fill({f"n{number}": f"Shipment note {number}: parcels have left" for number in range(200)})
    await any_memory.set("code", "Shipment note: parcel ZX-4417-Q has left")
    assert (await any_memory.found("ZX-4417-Q"))[0] == "code"


@pytest.mark.parametrize(
    ("value", "query"),
    [
        ("我今天早上喝了一杯咖啡然后去公司", "咖啡"),
        ("请修改配置 GOALS.md 然后重启 9router", "配置"),
        ("请修改配置 GOALS.md 然后重启 9router", "GOALS.md"),
        ("请修改配置 GOALS.md 然后重启 9router", "9router"),
        ("昨日は東京タワーに登りました", "東京"),
        ("저는 아침마다 커피를 마십니다", "커피"),
        ("the part is ZX-4417-Q today", "ZX-4417-Q"),
        ("open C:\\src\\main.py first", "C:\\src\\main.py"),
        ("open C:\\src\\main.py first", "main.py"),
        ("rename foo_bar to baz", "foo_bar"),
        ("write to jo.doe@example.com please", "jo.doe@example.com"),
        ("job 123e4567-e89b-12d3-a456-426614174000 failed", "123e4567-e89b-12d3-a456-426614174000"),
        ("Invoices 2024", "invoices"),
    ],
)
async def test_a_word_or_identifier_in_any_script_is_found_by_words_alone(
    memory: MemoryHarness, value: str, query: str
) -> None:
    await memory.set("k", value)
    await memory.fill({f"n{number}": f"unrelated entry about {topic}" for number, topic in enumerate(TOPICS)})
    assert await memory.found(query, mode=SearchMode.LEXICAL) == ["k"]
    assert (await memory.found(query))[0] == "k"


async def test_a_fact_deep_in_a_long_note_is_found_and_shown_as_one_memory(any_memory: MemoryHarness) -> None:
    filler = "The committee met again and discussed the schedule of the coming season at length. "
    text = (filler * 50)[:4000] + " The residence of the physician is in Lyon. " + filler * 10
    assert len(text) > 4800
    await any_memory.set("note", text)
    await any_memory.set("other", "violin lessons on tuesdays")
    for query, mode in [("Lyon", SearchMode.LEXICAL), ("house of the doctor", SearchMode.VECTOR)]:
        hits = (await any_memory.search(query, mode=mode)).hits
        assert [hit.memory.identity.key for hit in hits] == ["note"]
        assert hits[0].memory.content.value == text


async def test_what_was_never_stored_is_not_answered(any_memory: MemoryHarness) -> None:
    await any_memory.fill({f"f{number}": f"{topic} for the weekend" for number, topic in enumerate(TOPICS)})
    for query in ("submarine propeller", "quantum chromodynamics", "basket weaving"):
        result = await any_memory.search(query, top_k=50)
        assert all(hit.low for hit in result.hits)
        if not result.hits:
            assert result.abstain_code in ("no_match", "below_floor")


async def test_an_empty_namespace_says_so(memory: MemoryHarness) -> None:
    assert (await memory.search("anything")).abstain_code == "empty_namespace"
    await memory.set("k", "violin lessons")
    result = await memory.search("submarine", mode=SearchMode.LEXICAL)
    assert (result.hits, result.abstain_code) == ([], "no_match")


async def test_top_k_is_honoured_and_identities_are_distinct(any_memory: MemoryHarness) -> None:
    await any_memory.fill({f"f{number}": f"Project fact {number}: the team prefers tea" for number in range(50)})
    for top_k in (1, 10, 50, 100):
        result = await any_memory.search("what does the team prefer", top_k=top_k)
        assert len(result.hits) == min(top_k, 50)
        assert len({hit.memory.identity for hit in result.hits}) == len(result.hits)
        assert result.candidates_total == 50


async def test_an_updated_memory_is_found_by_its_new_text_and_not_by_its_old(any_memory: MemoryHarness) -> None:
    await any_memory.set("k", "acquired an espresso machine")
    await any_memory.set("k", "plays violin")
    assert await any_memory.found("violin", mode=SearchMode.LEXICAL) == ["k"]
    for mode in SearchMode:
        assert await any_memory.found("bought coffee machine", mode=mode) == []


async def test_a_deleted_memory_is_found_in_no_mode_at_once_and_after_the_marks(any_memory: MemoryHarness) -> None:
    await any_memory.set("k", "acquired an espresso machine")
    assert await any_memory.delete("k")
    for _ in range(2):
        for mode in SearchMode:
            assert (await any_memory.search("bought coffee machine espresso", mode=mode)).hits == []
        await any_memory.parts.deletions.flush()


async def test_filters_are_exact_for_a_user_with_few_rows_in_a_large_namespace(any_memory: MemoryHarness) -> None:
    await any_memory.fill({f"n{number}": "lives in the old town by the river" for number in range(1200)}, user_id="u2")
    await any_memory.set("home", "lives in a mountain village", user_id="u1", kind="fact", tags=("x", "y"), agent="a1")
    for wanted in (Filter(user_id="u1"), Filter(kinds=("fact",)), Filter(tags=("y",)), Filter(agent="a1")):
        for mode in SearchMode:
            hits = (await any_memory.search("lives in the mountain village", wanted=wanted, mode=mode)).hits
            assert [hit.memory.identity.key for hit in hits] == ["home"]
    assert (await any_memory.search("lives", wanted=Filter(session_id="none"))).hits == []


async def test_many_superseded_versions_near_the_query_hide_no_live_memory(memory: MemoryHarness) -> None:
    await memory.fill({f"k{number}": f"espresso machine number {number}" for number in range(500)})
    await memory.fill({f"k{number}": "violin lessons" for number in range(500)})
    await memory.set("live", "espresso grinder")
    assert await memory.found("espresso machine", mode=SearchMode.VECTOR) == ["live"]


async def test_as_many_are_found_as_are_wanted_where_each_has_several_vectors_alike(memory: MemoryHarness) -> None:
    await memory.fill({f"k{number}": "espresso " * 160 for number in range(70)})  # four windows each
    result = await memory.search("espresso", mode=SearchMode.VECTOR, top_k=70)
    assert (len(result.hits), result.candidates_total) == (70, 70)


async def test_two_users_with_one_key_are_two_hits(memory: MemoryHarness) -> None:
    await memory.set("k", "likes espresso", user_id="a")
    await memory.set("k", "likes espresso", user_id="b")
    hits = (await memory.search("espresso")).hits
    assert sorted(hit.memory.identity.user_id for hit in hits) == ["a", "b"]


async def test_a_hit_is_whole_and_ranked_by_its_beginning_its_length_and_its_time(memory: MemoryHarness) -> None:
    told = datetime(2026, 3, 1, tzinfo=UTC)
    value = "espresso \u5496\u5561 " + "machine " * 100
    await memory.set("k", value, tags=("t",), event_time=told, speaker="Ann", session_id="s1")
    await memory.set("plain", "espresso")
    repository = MemoryRepository(memory.ch)
    identities = [Identity("k", "", "s1"), Identity("plain"), Identity("none")]
    sketches = await repository.sketches(memory.scope, Filter(), identities, datetime.now(UTC))
    plain = await memory.get("plain")
    assert plain is not None
    assert sketches.keys() == set(identities[:2])
    sketch = sketches[identities[0]]
    assert (sketch.speaker, sketch.at, sketch.chars, sketch.text) == ("Ann", told, len(value), value[:400])
    assert (sketches[identities[1]].at, sketches[identities[1]].version) == (plain.created_at, plain.version)
    hits = (await memory.search("espresso machine")).hits
    assert hits[0].memory == await memory.get("k", "", "s1")


async def test_a_session_beyond_the_bound_lends_nothing_and_its_rows_are_still_found(
    memory: MemoryHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = ["Where did you buy the espresso machine?", "At the shop in Lyon.", "Nice."]
    await memory.fill({f"t{number}": turn for number, turn in enumerate(turns)}, session_id="s1")
    seeds = [Identity("t0", "", "s1")]
    repository, now = MemoryRepository(memory.ch), datetime.now(UTC)
    statistics = Statistics(rows=3, mean_dl=5.0, speakers=())
    around = await repository.neighbours(memory.scope, Filter(), now, seeds, statistics)
    assert [(each.identity.key, each.position) for each in around] == [("t0", 1), ("t1", 2), ("t2", 3)]
    monkeypatch.setattr(memories, "LONGEST_SESSION", 2)
    assert await repository.neighbours(memory.scope, Filter(), now, seeds, statistics) == []
    assert (await memory.found("espresso machine"))[0] == "t0"


async def test_a_turn_beside_the_one_that_matches_can_be_found(memory: MemoryHarness) -> None:
    turns = ["Hi!", "Where did you buy the espresso machine?", "At the shop in Lyon.", "Nice.", "See you."]
    await memory.fill({f"t{number}": turn for number, turn in enumerate(turns)}, session_id="s1")
    await memory.fill({f"n{number}": f"notes about {topic}" for number, topic in enumerate(TOPICS)}, session_id="s2")
    keys = [hit.memory.identity.key for hit in (await memory.search("where was the espresso machine bought")).hits]
    assert {"t1", "t2"} <= set(keys)


async def test_a_query_that_cannot_be_embedded_is_an_error_and_words_alone_still_work(memory: MemoryHarness) -> None:
    await memory.set("k", "violin lessons")
    for failure in (EmbedTimeout("late"), BackendUnavailable("away")):
        memory.embedding.failure = failure
        for mode in (SearchMode.HYBRID, SearchMode.VECTOR):
            with pytest.raises(type(failure)):
                await memory.search("violin", mode=mode)
        assert await memory.found("violin", mode=SearchMode.LEXICAL) == ["k"]


async def test_expired_memories_are_found_by_nobody(clickhouse: ClickHouse) -> None:
    clock = FakeClock()
    memory = await memory_over(clickhouse, clock=clock)
    await memory.set("k", "violin lessons", expires_at=clock.now() + timedelta(seconds=10))
    assert await memory.found("violin") == ["k"]
    clock.advance(10)
    assert await memory.get("k") is None
    for mode in SearchMode:
        assert (await memory.search("violin", mode=mode)).hits == []
    assert await memory.list_all() == []
    assert (await memory.history("k")).memories == []
    assert (await memory.set("k", "violin lessons")).revision == 2


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_writes_are_found_at_once_among_many_rows_beside_a_writer(memory: MemoryHarness) -> None:
    await memory.fill({f"n{number}": f"entry {number} about {TOPICS[number % 5]}" for number in range(2_000)})
    stop = asyncio.Event()

    async def write() -> None:
        number = 0
        while not stop.is_set():
            await memory.set(f"w{number % 50}", f"running note {number}")
            number += 1

    writer = asyncio.create_task(write())
    try:
        for number in range(20):
            await memory.set(f"new{number}", f"acquired an automobile qz{number}token")
            assert await memory.found(f"qz{number}token", mode=SearchMode.LEXICAL) == [f"new{number}"]
            assert f"new{number}" in await memory.found("bought car", mode=SearchMode.VECTOR, top_k=50)
            await memory.set(f"new{number}", f"physician residence ry{number}token")
            assert (await memory.found(f"ry{number}token"))[0] == f"new{number}"
            assert f"new{number}" in await memory.found("doctor home", mode=SearchMode.VECTOR, top_k=50)
            assert f"new{number}" not in await memory.found("bought car", mode=SearchMode.VECTOR, top_k=50)
            assert await memory.found(f"qz{number}token", mode=SearchMode.LEXICAL) == []
            if number % 2:
                await memory.delete(f"new{number}")
                assert await memory.found(f"ry{number}token", mode=SearchMode.LEXICAL) == []
                assert f"new{number}" not in await memory.found("doctor home", mode=SearchMode.VECTOR, top_k=50)
    finally:
        stop.set()
        await writer


async def test_a_key_that_is_rewritten_without_pause_is_never_missed(memory: MemoryHarness) -> None:
    await memory.set("hot", "espresso 0")
    stop = asyncio.Event()

    async def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            await memory.set("hot", f"espresso {number}")

    writer = asyncio.create_task(write())
    try:
        for _ in range(30):
            for mode in SearchMode:
                assert await memory.found("espresso", mode=mode) == ["hot"]
    finally:
        stop.set()
        await writer


async def test_a_blank_query_is_refused(memory: MemoryHarness) -> None:
    with pytest.raises(InvalidArgument):
        await memory.search("  ")
