"""What interrupted writes leave, and its removal."""

from dataclasses import replace

from support.memory import MemoryHarness, sweep

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse
from loom_common.errors import QueryLimit
from loom_memory.app.search import SearchMode
from loom_memory.domain.memory import Content, Identity, Memory
from loom_memory.store.columns import KeyRange
from loom_memory.store.embeddings import EmbeddedChunk, EmbeddingRepository
from loom_memory.store.versions import VersionRepository
from loom_memory.workers.sweep import Swept


async def leave_half_a_write(memory: MemoryHarness, key: str, value: str) -> Memory:
    """Does what a write does before its row in `memory`."""
    await memory.set(key, "violin lessons")
    row = await memory.get(key)
    assert row is not None
    half = replace(row, content=Content(value), revision=row.revision + 1, version=row.version + 1)
    chunk = (await memory.embedding.embed_many([value]))[0]
    assert isinstance(chunk, list)
    await EmbeddingRepository(memory.ch).insert(
        "fake", [EmbeddedChunk(memory.scope, row.identity, half.version, 0, 0, len(value), chunk[0].vector)]
    )
    await VersionRepository(memory.ch).insert([half])
    return half


async def rows(ch: ClickHouse, table: str) -> int:
    await ch.command(f"OPTIMIZE TABLE {table} FINAL")  # waits for the rewrites
    count: int = (await ch.query(f"SELECT count() FROM {table}")).scalar()
    return count


async def test_half_a_write_is_seen_by_no_read_and_the_memory_stays_found(any_memory: MemoryHarness) -> None:
    await leave_half_a_write(any_memory, "k", "espresso machine")
    await any_memory.ch.command("OPTIMIZE TABLE memory_embeddings FINAL")
    assert [version.revision for version in (await any_memory.history("k")).memories] == [1]
    for mode in SearchMode:
        assert await any_memory.found("espresso machine", mode=mode) == []
        assert await any_memory.found("violin lessons", mode=mode) == ["k"]


async def test_the_write_after_half_a_write_takes_its_revision(memory: MemoryHarness) -> None:
    await leave_half_a_write(memory, "k", "espresso machine")
    assert (await memory.set("k", "kernel scheduler")).revision == 2
    versions = (await memory.history("k")).memories
    assert [(version.revision, version.content.value) for version in versions] == [
        (2, "kernel scheduler"),
        (1, "violin lessons"),
    ]


async def test_the_sweep_removes_leftovers_and_nothing_else(any_memory: MemoryHarness) -> None:
    await leave_half_a_write(any_memory, "half", "espresso machine")
    await any_memory.set("updated", "kernel scheduler")
    await any_memory.set("updated", "mountain hiking")
    await any_memory.set("deleted", "garden roses")
    await any_memory.delete("deleted")
    await any_memory.parts.deletions.flush()
    swept = await sweep(any_memory)
    assert (swept.embeddings, swept.versions) == (3, 1)
    assert await rows(any_memory.ch, "memory_embeddings") == 4  # a value and a key of two memories
    assert await any_memory.found("violin lessons", mode=SearchMode.VECTOR) == ["half"]
    assert await any_memory.found("mountain hiking", mode=SearchMode.VECTOR) == ["updated"]
    assert len((await any_memory.history("updated")).memories) == 2
    assert (await sweep(any_memory)).embeddings == 0


async def test_the_sweep_leaves_a_write_that_is_under_way(memory: MemoryHarness) -> None:
    await leave_half_a_write(memory, "k", "espresso machine")
    assert await sweep(memory, grace_ns=600_000_000_000) == Swept()


async def test_the_sweep_marks_the_versions_of_a_deletion_that_a_crash_left_unmarked(memory: MemoryHarness) -> None:
    await memory.set("k", "v1")
    await memory.set("k", "v2")
    await memory.delete("k")
    memory.parts.deletions._waiting.clear()  # as a crash would
    assert (await sweep(memory)).deletions == 1
    await memory.ch.command("OPTIMIZE TABLE memory_versions FINAL")
    marked = await memory.ch.query("SELECT count() FROM memory_versions WHERE tombstoned_at IS NULL")
    assert marked.scalar() == 0


async def test_other_namespaces_are_swept_too_and_keep_their_own(memory: MemoryHarness) -> None:
    await memory.set("k", "violin", scope=Scope("other", "team"))
    await memory.set("k", "espresso")
    await memory.delete("k")
    await sweep(memory)
    found = await memory.search("violin", scope=Scope("other", "team"))
    assert [hit.memory.identity for hit in found.hits] == [Identity("k")]
    assert (await memory.search("violin")).hits == []


async def test_a_namespace_larger_than_one_range_is_swept_to_its_end(memory: MemoryHarness) -> None:
    keys = [f"k{number:02}" for number in range(23)]
    for value in ("espresso", "violin"):
        await memory.fill({key: f"{value} {key}" for key in keys})
    half = await leave_half_a_write(memory, "z", "espresso machine")
    lone = replace(half, identity=Identity("zz"), version=half.version + 1)
    await EmbeddingRepository(memory.ch).insert(
        "fake", [EmbeddedChunk(memory.scope, lone.identity, lone.version, 0, 0, 1, [1.0] * 256)]
    )
    swept = await sweep(memory, range_size=15, batch_size=4)
    assert (swept.embeddings, swept.versions) == (len(keys) + 2, 1)
    assert await rows(memory.ch, "memory_embeddings") == len(keys) + 1


class _OneNamespaceTooLarge(VersionRepository):
    async def range_after(self, scope: Scope, after: str, size: int) -> KeyRange:
        if scope.namespace == "large":
            raise QueryLimit("too much memory")
        return await super().range_after(scope, after, size)


async def test_a_namespace_that_cannot_be_swept_does_not_keep_the_others_from_it(memory: MemoryHarness) -> None:
    for namespace in ("large", "team"):
        scope = Scope("acme", namespace)
        await memory.set("k", "violin", scope=scope)
        await memory.set("k", "espresso", scope=scope)
    assert (await sweep(memory, versions=_OneNamespaceTooLarge(memory.ch))).embeddings == 1
    assert (await sweep(memory)).embeddings == 1
