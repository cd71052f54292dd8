"""A key that says something has a vector of its own beside its value's."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import pytest
from support.memory import CONCEPTS, MemoryHarness, memory_over, sweep
from support.memory_keys import NAMING, SAYING

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse
from loom_common.errors import LoomError, ModelCallsOff, ProviderFailed
from loom_memory.app.embedding import EmbeddedText
from loom_memory.app.embedding_fake import FakeEmbedding
from loom_memory.app.reembedding import Progress, ReembedOptions
from loom_memory.app.search import SearchMode
from loom_memory.domain.keys import FIRST_KEY_CHUNK, key_text
from loom_memory.domain.memory import Filter, Identity
from loom_memory.domain.vectors import VectorSpace
from loom_memory.store import key_sql
from loom_memory.store.embeddings import EmbeddedChunk, EmbeddingRepository
from loom_memory.workers.embedding import Turn

KEY, VALUE = "preferred-automobile", "a blue estate from Turin"
QUERY = "preferred vehicle"
OLD, NEW = VectorSpace("fake-ngram-64", 64), VectorSpace("fake-ngram-128", 128)


class Noting(FakeEmbedding):
    """Notes the texts of each call."""

    def __init__(self, space: VectorSpace = OLD) -> None:
        super().__init__(CONCEPTS, dim=space.dim, model=space.model)
        self.calls: list[list[str]] = []

    async def embed_many(self, texts: Sequence[str]) -> list[EmbeddedText]:
        self.calls.append(list(texts))
        return await super().embed_many(texts)


@pytest.fixture
async def memory(clickhouse: ClickHouse) -> MemoryHarness:
    return await memory_over(clickhouse, Noting())


def calls(memory: MemoryHarness) -> list[list[str]]:
    assert isinstance(memory.embedding, Noting)
    return memory.embedding.calls


async def rows(memory: MemoryHarness, key: str = KEY) -> list[tuple[str, int, int]]:
    """Returns model, number and width of each row of a key, of versions that are not past."""
    await memory.ch.command("OPTIMIZE TABLE memory_embeddings FINAL")
    found = await memory.ch.query(
        "SELECT embedding_model, chunk, embedding_dim FROM memory_embeddings WHERE memory_key = {key:String} "
        "AND version = (SELECT max(version) FROM memory WHERE memory_key = {key:String}) ORDER BY ALL",
        {"key": key},
    )
    return [(row[0], row[1], row[2]) for row in found]


async def lose(memory: MemoryHarness, model: str, chunk: int) -> None:
    """Removes the rows of one number."""
    await memory.ch.command(
        "ALTER TABLE memory_embeddings DELETE WHERE embedding_model = {model:String} AND chunk = {chunk:UInt16} "
        "SETTINGS mutations_sync = 2",
        {"model": model, "chunk": chunk},
    )


async def run(memory: MemoryHarness, **options: object) -> Progress:
    async with aclosing(memory.parts.reembedding.run(ReembedOptions(**options))) as progresses:  # type: ignore[arg-type]  # any option
        async for progress in progresses:
            last = progress
    assert last.finished
    return last


async def found_by_key(memory: MemoryHarness) -> bool:
    return (await memory.found(QUERY, mode=SearchMode.VECTOR))[:1] == [KEY]


async def test_the_database_reads_the_rule_of_keys_as_this_process_does(clickhouse: ClickHouse) -> None:
    keys = [*SAYING, *NAMING]
    found = await clickhouse.query(
        f"SELECT memory_key, {key_sql.SAYS_WORDS}, {key_sql.KEY_TEXT} "
        "FROM (SELECT arrayJoin({keys:Array(String)}) AS memory_key)",
        {"keys": keys},
    )
    assert {row[0]: row[2] if row[1] else "" for row in found} == {key: key_text(key) for key in keys}


async def test_a_memory_is_found_by_a_paraphrase_of_its_key_and_shown_by_its_value(memory: MemoryHarness) -> None:
    await memory.set("k1", "notes of a walk")
    await memory.set(KEY, VALUE)
    result = await memory.search(QUERY, mode=SearchMode.VECTOR)
    assert [hit.memory.identity.key for hit in result.hits] == [KEY]
    assert result.hits[0].memory.content.value == VALUE
    assert result.hits[0].similarity == pytest.approx(1.0, abs=1e-5)
    assert (result.pending, result.candidates_total) == (0, 1)


async def test_value_and_key_are_embedded_in_one_request(memory: MemoryHarness) -> None:
    await memory.set(KEY, VALUE)
    assert calls(memory) == [[VALUE, "preferred automobile"]]
    drafts = [memory.draft("home-address", "12 Elm Street"), memory.draft("k1", "12 Elm Street")]
    await memory.set_many([*drafts, memory.draft("home_address", "elsewhere")])
    assert calls(memory)[1:] == [["12 Elm Street", "elsewhere", "home address"]]
    assert await rows(memory, "k1") == [(OLD.model, 0, OLD.dim)]


async def test_an_update_keeps_the_key_and_a_deletion_ends_it(memory: MemoryHarness) -> None:
    await memory.set(KEY, VALUE)
    await memory.set(KEY, "a red van from Turin")
    assert await rows(memory) == [(OLD.model, 0, OLD.dim), (OLD.model, FIRST_KEY_CHUNK, OLD.dim)]
    assert await found_by_key(memory)
    await memory.delete(KEY)
    assert await memory.found(QUERY) == []
    await memory.parts.deletions.close()


async def test_a_key_that_cannot_be_embedded_refuses_the_write_of_its_own_memory_alone(memory: MemoryHarness) -> None:
    memory.embedding.poison = {"automobile"}
    refused, stored = await memory.set_many([memory.draft(KEY, VALUE), memory.draft("k1", VALUE)])
    assert isinstance(refused, ProviderFailed)
    assert not isinstance(stored, LoomError)
    assert await memory.get(KEY) is None


async def test_a_stub_is_given_both(memory: MemoryHarness) -> None:
    memory.embedding.refusal = ModelCallsOff("off")
    await memory.set(KEY, VALUE)
    assert await rows(memory) == [(OLD.model, 0, 0)]
    memory.embedding.refusal = None
    assert await memory.parts.embedding_worker.take_turn() == Turn(embedded=1)
    assert await rows(memory) == [(OLD.model, 0, OLD.dim), (OLD.model, FIRST_KEY_CHUNK, OLD.dim)]
    assert calls(memory)[-1:] == [[VALUE, "preferred automobile"]]
    assert await found_by_key(memory)


async def test_a_value_that_is_given_no_vector_at_all_leaves_none_of_its_key(clickhouse: ClickHouse) -> None:
    class Blank(Noting):
        async def embed_many(self, texts: Sequence[str]) -> list[EmbeddedText]:
            found = await super().embed_many(texts)
            return [[] if text == VALUE else each for text, each in zip(texts, found, strict=True)]

    memory = await memory_over(clickhouse, Blank())
    memory.embedding.refusal = ModelCallsOff("off")
    await memory.set(KEY, VALUE)
    memory.embedding.refusal = None
    assert await memory.parts.embedding_worker.take_turn() == Turn(failed=1)
    assert {row[2] for row in await rows(memory)} == {0}


async def test_vectors_of_a_key_alone_leave_the_value_waiting(memory: MemoryHarness) -> None:
    await memory.set(KEY, VALUE)
    await memory.set("k1", "notes of a walk")
    changed = await memory_over(memory.ch, Noting(NEW))
    done = await run(changed, key_only=True, delete_old=True)
    assert (done.total, done.done, done.deleted) == (1, 1, 0)
    assert calls(changed) == [["preferred automobile"]]
    assert await found_by_key(changed)
    assert (await changed.search("walk")).pending == 2
    assert (await run(changed, key_only=True)).total == 0
    done = await run(changed, delete_old=True)
    assert (done.total, done.done, done.deleted) == (2, 2, 2)
    assert calls(changed)[-1:] == [["notes of a walk", VALUE]]
    assert await rows(changed) == [(NEW.model, 0, NEW.dim), (NEW.model, FIRST_KEY_CHUNK, NEW.dim)]


async def test_a_key_without_a_vector_is_given_one_where_the_value_has_its_own(memory: MemoryHarness) -> None:
    await memory.set(KEY, VALUE)
    await lose(memory, OLD.model, FIRST_KEY_CHUNK)
    assert not await found_by_key(memory)
    assert (await memory.search(QUERY)).pending == 0
    assert await memory.parts.embedding_worker.stub_missing() == 0
    # What is shown already needs no staging.
    done = await run(memory, staged=True)
    assert (done.total, done.done, done.withheld) == (1, 1, 0)
    assert calls(memory)[-1:] == [["preferred automobile"]]
    assert await rows(memory) == [(OLD.model, 0, OLD.dim), (OLD.model, FIRST_KEY_CHUNK, OLD.dim)]


async def test_staged_vectors_of_keys_are_shown_with_those_of_values(memory: MemoryHarness) -> None:
    await memory.set(KEY, VALUE)
    await memory.set("home-address", "the lane by the mill")
    changed = await memory_over(memory.ch, Noting(NEW))
    changed.embedding.poison = {"lane"}
    held = await run(changed, staged=True)
    assert (held.done, held.failed, held.withheld) == (1, 1, 1)
    assert not await found_by_key(changed)
    changed.embedding.poison = set()
    done = await run(changed, staged=True, resume=True, delete_old=True)
    assert (done.done, done.withheld, done.deleted) == (1, 0, 2)
    assert await rows(changed) == [(NEW.model, 0, NEW.dim), (NEW.model, FIRST_KEY_CHUNK, NEW.dim)]
    assert await found_by_key(changed)


async def test_the_key_of_a_value_that_is_staged_is_staged_too(memory: MemoryHarness) -> None:
    await memory.set(KEY, VALUE)
    await memory.set("home-address", "the lane by the mill")
    changed = await memory_over(memory.ch, Noting(NEW))
    changed.embedding.poison = {"lane"}
    assert (await run(changed, staged=True)).withheld == 1
    await lose(memory, NEW.staged, FIRST_KEY_CHUNK)
    held = await run(changed, staged=True, resume=True)
    assert (held.done, held.failed, held.withheld) == (1, 1, 1)
    assert [row for row in await rows(memory) if row[0] != OLD.model] == [
        (NEW.staged, 0, NEW.dim),
        (NEW.staged, FIRST_KEY_CHUNK, NEW.dim),
    ]


async def test_vectors_of_a_key_of_which_some_are_missing_are_not_shown(memory: MemoryHarness) -> None:
    await memory.set("word " * 100, VALUE)
    await memory.set("home-address", "the lane by the mill")
    changed = await memory_over(memory.ch, Noting(NEW))
    changed.embedding.poison = {"lane"}
    await run(changed, staged=True)
    await lose(memory, NEW.staged, FIRST_KEY_CHUNK)
    changed.embedding.poison = set()
    assert (await run(changed, staged=True, resume=True)).withheld == 1
    assert (await run(changed, staged=True)).withheld == 0


async def test_a_memory_that_has_nothing_but_its_keys_vector_is_given_a_stub(memory: MemoryHarness) -> None:
    await memory.set(KEY, VALUE)
    await lose(memory, OLD.model, 0)
    assert await memory.parts.embedding_worker.stub_missing() == 1
    assert await memory.parts.embedding_worker.take_turn() == Turn(embedded=1)
    assert await rows(memory) == [(OLD.model, 0, OLD.dim), (OLD.model, FIRST_KEY_CHUNK, OLD.dim)]


async def test_vectors_of_keys_answer_their_own_namespace_organisation_and_user_alone(memory: MemoryHarness) -> None:
    elsewhere = [Scope("acme", "home"), Scope("umbra", "team")]
    for number, scope in enumerate([memory.scope, *elsewhere]):
        await memory.set(KEY, f"value {number}", scope=scope, user_id="ann")
    await memory.set(KEY, "value 3", user_id="bob")
    for number, scope in enumerate([memory.scope, *elsewhere]):
        hits = (await memory.search(QUERY, scope=scope, wanted=Filter(user_id="ann"))).hits
        assert [hit.memory.content.value for hit in hits] == [f"value {number}"]
    await memory.delete(KEY, user_id="ann")
    assert [hit.memory.content.value for hit in (await memory.search(QUERY)).hits] == ["value 3"]
    assert (await memory.search(QUERY, wanted=Filter(user_id="ann"))).hits == []
    assert len((await memory.search(QUERY, scope=elsewhere[0])).hits) == 1
    await memory.parts.deletions.close()


async def test_each_key_of_any_script_is_found_by_what_it_says_and_stays_apart_from_others(
    clickhouse: ClickHouse,
) -> None:
    # Wide enough that no two words have one direction.
    memory = await memory_over(clickhouse, Noting(VectorSpace("fake-ngram-4096", 4096)))
    keys = [*SAYING, "EDITOR", "Editor", *filter(None, NAMING)]
    await memory.fill(dict.fromkeys(keys, "stored"))
    stored = await memory.ch.query(
        "SELECT memory_key, countIf(chunk < {first:UInt16}), countIf(chunk >= {first:UInt16}) FROM memory_embeddings "
        "GROUP BY memory_key",
        {"first": FIRST_KEY_CHUNK},
    )
    assert {row[0]: (row[1], row[2] > 0) for row in stored} == {key: (1, bool(key_text(key))) for key in keys}
    assert (await run(memory, dry_run=True)).total == 0
    for query, wanted in [
        ("집 주소", "집-주소"),
        ("כתובת הבית", "\u200fכתובת-הבית"),
        ("DROP TABLE", "x'); DROP TABLE memory; --"),
        ("word", "word " * 102 + "ab"),
    ]:
        found = await memory.search(query, mode=SearchMode.VECTOR, top_k=1)
        assert [hit.memory.identity.key for hit in found.hits] == [wanted]
    found = await memory.search("editor", mode=SearchMode.VECTOR, top_k=3)
    assert {hit.memory.identity.key for hit in found.hits} == {"editor", "EDITOR", "Editor"}


async def test_the_sweep_leaves_no_vector_of_a_key_that_was_renamed_updated_or_never_shown(
    memory: MemoryHarness,
) -> None:
    await memory.set(KEY, VALUE)
    await memory.set(KEY, "a red van")
    await memory.set("home-address", "12 Elm Street")
    await memory.delete("home-address")
    await memory.set("postal-address", "12 Elm Street")
    # A write that ended before its row in `memory` did.
    row = await memory.get(KEY)
    assert row is not None
    lone = EmbeddedChunk(memory.scope, Identity("lone-key"), row.version, FIRST_KEY_CHUNK, 0, 0, [1.0] * OLD.dim)
    await EmbeddingRepository(memory.ch).insert(OLD.model, [lone])
    assert await memory.found("home address", mode=SearchMode.VECTOR) == ["postal-address"]
    assert (await sweep(memory)).embeddings == 3
    await memory.ch.command("OPTIMIZE TABLE memory_embeddings FINAL")  # waits for the rewrites
    left = await memory.ch.query("SELECT memory_key, count() FROM memory_embeddings GROUP BY ALL ORDER BY ALL")
    assert [(row[0], row[1]) for row in left] == [("postal-address", 2), (KEY, 2)]
    await memory.parts.deletions.close()


async def test_two_writers_of_one_key_leave_the_vectors_of_the_last(memory: MemoryHarness) -> None:
    other = await memory_over(memory.ch, Noting())
    await asyncio.gather(memory.set(KEY, "a red van"), other.set(KEY, "a blue estate"), memory.set(KEY, "a green bus"))
    row = await memory.get(KEY)
    assert row is not None
    assert await rows(memory) == [(OLD.model, 0, OLD.dim), (OLD.model, FIRST_KEY_CHUNK, OLD.dim)]
    hits = (await other.search(QUERY, mode=SearchMode.VECTOR)).hits
    assert [(hit.memory.content.value, hit.memory.version) for hit in hits] == [(row.content.value, row.version)]
