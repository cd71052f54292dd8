"""The tier answers as the database does, over the real engine."""

import random
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from support.memory import MemoryHarness, memory_over

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse
from loom_common.clock import SystemClock
from loom_common.errors import LoomError
from loom_memory.app.search import SearchMode
from loom_memory.domain.analyzer import analyze_query, term_id
from loom_memory.domain.memory import Filter, Identity
from loom_memory.domain.vectors import VectorSpace
from loom_memory.store.embeddings import EmbeddingRepository, QueryVector
from loom_memory.store.memories import MemoryRepository
from loom_memory.tier.repositories import TieredEmbeddings, TieredMemories

WORDS = ["coffee", "tea", "train", "main.py", "ZX-4417-Q", "doctor", "house", "garden", "咖啡", "rain"]
FILTERS = (
    Filter(),
    Filter(user_id="u1"),
    Filter(user_id="", session_id="s1"),
    Filter(kinds=("fact",), tags=("red", "blue")),
    Filter(agent="a1"),
)


async def load(memory: MemoryHarness, scope: Scope | None = None) -> None:
    served = await memory.embedding.served_model()
    assert await memory.parts.tier.load(scope or memory.scope, VectorSpace(served.name, served.dim))


async def random_writes(memory: MemoryHarness, rng: random.Random, count: int) -> None:
    """Sets, replaces and deletes; some expire."""
    now = SystemClock().now()
    drafts = []
    for number in range(count):
        key = f"key {rng.randrange(30)}" if rng.random() < 0.5 else f"k-{rng.randrange(30)}"
        drafts.append(
            memory.draft(
                key, " ".join(rng.choices(WORDS, k=rng.randint(1, 12))) + f" {number}",
                user_id=rng.choice(["", "u1"]), session_id=rng.choice(["", "s1"]),
                kind=rng.choice(["note", "fact"]), tags=(rng.choice(["red", "blue", "green"]),),
                agent=rng.choice(["", "a1"]), speaker=rng.choice(["", "Ann"]),
                event_time=rng.choice([None, now - timedelta(days=rng.randint(1, 9))]),
                expires_at=rng.choice([None, None, now + timedelta(minutes=5), now + timedelta(days=1)]),
            )
        )  # fmt: skip
    for outcome in await memory.set_many(drafts):
        assert not isinstance(outcome, LoomError)
    for draft in rng.sample(drafts, k=4):
        await memory.delete(*draft.identity)


async def test_the_tier_answers_as_the_database(memory: MemoryHarness) -> None:
    rng = random.Random(1)
    await random_writes(memory, rng, 60)
    await load(memory)
    await random_writes(memory, rng, 40)
    tier, scope = memory.parts.tier, memory.scope
    shard = await tier.shard(scope)
    assert shard is not None
    plain, plain_vectors = MemoryRepository(memory.ch), EmbeddingRepository(memory.ch)
    held, held_vectors = TieredMemories(memory.ch, tier), TieredEmbeddings(memory.ch, tier)
    served = await memory.embedding.served_model()
    now = SystemClock().now() + timedelta(minutes=6)  # some have expired by then
    everything = [Identity(*key) for key in {row[:3] for row in await memory.ch.query(
        "SELECT memory_key, user_id, session_id FROM memory")}]  # fmt: skip
    for wanted in FILTERS:
        known = await plain.statistics(scope, wanted, now)
        found = await held.statistics(scope, wanted, now)
        assert (found.rows, found.speakers) == (known.rows, known.speakers)
        assert found.mean_dl == pytest.approx(known.mean_dl)
        for text in ("coffee train", "ZX-4417-Q garden", "咖啡"):
            query = analyze_query(text)
            expected = await plain.lexical(scope, wanted, now, query, known, 20)
            lexical = await held.lexical(scope, wanted, now, query, known, 20)
            assert [(hit.identity, hit.version, hit.exact) for hit in lexical] == [
                (hit.identity, hit.version, hit.exact) for hit in expected
            ]
            assert [hit.bm25 for hit in lexical] == pytest.approx([hit.bm25 for hit in expected], abs=1e-5)
            assert [hit.share for hit in lexical] == pytest.approx([hit.share for hit in expected], abs=1e-5)
        vector = QueryVector(served.name, await memory.embedding.embed_query(rng.choice(WORDS) + " house"))
        near = await plain_vectors.nearest_live(scope, wanted, now, vector, 200)
        held_near = await held_vectors.nearest_live(scope, wanted, now, vector, 200)
        assert {(hit.identity, hit.version): hit.cosine for hit in held_near} == pytest.approx(
            {(hit.identity, hit.version): hit.cosine for hit in near}, abs=1e-5
        )
        current = {identity: row.version for identity, row in (await plain.current(scope, everything)).items()}
        scanned = [
            hit
            for hit in await plain_vectors.nearest(scope, wanted, vector, 1_000)
            if hit.version == current[hit.identity]
        ]
        held_scanned = await held_vectors.nearest(scope, wanted, vector, 1_000)
        deleted = {identity for identity, row in (await plain.current(scope, everything)).items() if row.tombstoned_at}
        assert sorted((hit.identity, hit.version) for hit in held_scanned) == sorted(
            (hit.identity, hit.version) for hit in scanned if hit.identity not in deleted
        )
        cosines = await plain_vectors.cosines(scope, vector, everything)
        held_cosines = await held_vectors.cosines(scope, vector, everything)
        assert held_cosines == pytest.approx(
            {each: cosine for each, cosine in cosines.items() if each in held_cosines}, abs=1e-5
        )
        assert await held.sketches(scope, wanted, everything, now) == await plain.sketches(
            scope, wanted, everything, now
        )
        assert await held.fetch(scope, wanted, everything, now) == await plain.fetch(scope, wanted, everything, now)
        seeds = [identity for identity in everything if identity.session_id][:4]
        assert await held.neighbours(scope, wanted, now, seeds, known) == await plain.neighbours(
            scope, wanted, now, seeds, known
        )
    assert await held.current(scope, everything) == await plain.current(scope, everything)


async def test_a_search_finds_a_write_and_misses_a_deletion_at_once(memory: MemoryHarness) -> None:
    await memory.set("old", "the doctor drinks coffee")
    await load(memory)
    await memory.set("new", "the physician likes espresso in the garden")
    assert set(await memory.found("doctor coffee")) == {"old", "new"}
    await memory.set("old", "snow on the mountain")
    assert await memory.found("doctor coffee") == ["new"]
    assert await memory.found("snow mountain") == ["old"]
    await memory.delete("new")
    assert await memory.found("espresso physician") == []
    assert memory.parts.tier.facts().namespaces == 1


async def test_numbers_whose_last_byte_looks_like_a_line_end_are_read_whole(memory: MemoryHarness) -> None:
    word = next(word for n in range(10_000) if term_id(word := f"word{n}") >> 24 == ord("\n"))
    await memory.set("a", f"coffee {word}")
    await load(memory)
    assert await memory.found(word, mode=SearchMode.LEXICAL) == ["a"]


async def test_statements_that_change_rows_make_the_namespace_be_read_anew(memory: MemoryHarness) -> None:
    await memory.set("a", "coffee")
    await load(memory)
    await memory.parts.sweep._embeddings.remove(memory.scope, [])
    assert memory.parts.tier.facts().namespaces == 1
    sql = "ALTER TABLE memory DELETE WHERE org = {org:String} AND namespace = {namespace:String}"
    watched = memory.parts.sweep._embeddings._ch
    await watched.command(sql, {"org": "acme", "namespace": "other"}, settings={"mutations_sync": 2})
    assert memory.parts.tier.facts().namespaces == 1
    await watched.command(sql, {"org": "acme", "namespace": "team"}, settings={"mutations_sync": 2})
    assert memory.parts.tier.facts().namespaces == 0
    assert await memory.found("coffee") == []


@pytest.fixture
async def two(http_clickhouse: ClickHouse) -> AsyncIterator[tuple[MemoryHarness, MemoryHarness]]:
    """Two processes' memories over one database."""
    one, other = await memory_over(http_clickhouse), await memory_over(http_clickhouse)
    yield one, other
    await one.parts.deletions.close()
    await other.parts.deletions.close()


async def test_over_http_what_another_process_writes_and_deletes_holds_at_once(
    two: tuple[MemoryHarness, MemoryHarness],
) -> None:
    one, other = two
    assert not one.ch.exclusive
    await one.set("a", "the doctor drinks coffee")
    await load(one)
    await other.set("b", "the doctor likes espresso")
    assert set(await one.found("doctor coffee")) == {"a", "b"}
    assert one.parts.tier.facts().rows == 2
    await other.delete("a")
    await other.set("b", "snow on the mountain")
    assert await one.found("doctor coffee") == []
    assert await one.found("snow mountain") == ["b"]
    assert one.parts.tier.facts().rows == 1
