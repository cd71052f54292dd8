"""Which namespaces are held, and that nothing stored is ever missed or shown after its deletion."""

import asyncio
import tracemalloc

import numpy as np
from support.tier import NOW, SCOPE, SPACE, TierHarness, deleted, memory, unit

from loom_common.call import Call, Scope, bind
from loom_memory.domain.memory import Filter
from loom_memory.domain.vectors import VectorSpace
from loom_memory.tier import reading
from loom_memory.tier.packing import sketch_of

OTHER = Scope("acme", "other")


def search(harness: TierHarness, scope: Scope, request_id: str, *, is_held: bool = False) -> None:
    with bind(Call(request_id=request_id)):
        harness.tier.searched(scope, SPACE, is_held=is_held)


async def test_a_namespace_is_loaded_at_its_second_search() -> None:
    harness = TierHarness()
    harness.foreign(memory("k", 1), [unit(1)])
    worker = asyncio.create_task(harness.tier.run())
    try:
        search(harness, SCOPE, "r1")
        search(harness, SCOPE, "r1")  # the other leg of the same search
        await asyncio.sleep(0)
        assert not harness.source.rows_read.is_set()
        search(harness, SCOPE, "r2")
        async with asyncio.timeout(5):
            await harness.source.rows_read.wait()
            await harness.tier.idle.wait()
        assert await harness.keys() == ["k"]
    finally:
        worker.cancel()


async def test_searches_that_lie_far_apart_load_nothing() -> None:
    harness = TierHarness()
    harness.foreign(memory("k", 1))
    search(harness, SCOPE, "r1")
    harness.clock.advance(1_000)
    search(harness, SCOPE, "r2")
    assert not harness.tier._wanted


async def test_what_is_stored_while_a_namespace_loads_is_in_it() -> None:
    harness = TierHarness()
    old, gone = memory("old", 1, "tea"), memory("gone", 2)
    harness.foreign(old, [unit(1)])
    harness.foreign(gone, [unit(2)])
    harness.source.gate.clear()
    load = asyncio.create_task(harness.tier.load(SCOPE, SPACE))
    await harness.source.rows_read.wait()
    harness.store(memory("new", 3), [unit(3)])
    harness.store(memory("old", 4, "coffee"), [unit(4)])
    harness.store(deleted(gone, 5))
    harness.source.gate.set()
    assert await load
    assert await harness.keys() == ["new", "old"]
    shard = await harness.tier.shard(SCOPE, SPACE)
    assert shard is not None
    assert shard.has_all_vectors
    assert {sketch_of(each).text for each in shard.packed if each is not None} == {"coffee"}


async def test_a_write_is_found_at_once_and_a_deletion_holds_at_once() -> None:
    harness = TierHarness()
    await harness.loaded()
    first = memory("k", 1)
    harness.store(first, [unit(1)])
    assert await harness.keys() == ["k"]
    harness.store(deleted(first, 2))
    assert await harness.keys() == []
    harness.store(memory("k", 3), [unit(1)])
    assert await harness.keys() == ["k"]


async def test_vectors_of_a_write_that_did_not_end_are_not_shown() -> None:
    harness = TierHarness()
    await harness.loaded()
    first = memory("k", 1)
    harness.store(first, [unit(1)])
    row = harness.source.vector_row(memory("k", 2), 0, unit(9))
    harness.tier.stored(SCOPE, "memory_embeddings", [row])
    shard = await harness.tier.shard(SCOPE, SPACE)
    assert shard is not None
    scanned = shard.vectors.scan(np.array(unit(9), np.float32))
    assert [hit.version for hit in reading.nearest(shard, Filter(), scanned, 5)] == [1]


async def test_a_doubtful_insert_leaves_the_namespace_to_the_database_for_a_while() -> None:
    harness = TierHarness()
    harness.foreign(memory("k", 1))
    await harness.loaded()
    harness.tier.doubt(SCOPE)
    assert await harness.keys() is None
    assert not await harness.tier.load(SCOPE, SPACE)
    harness.clock.advance(100)
    await harness.loaded()


async def test_a_load_during_which_something_else_was_changed_is_thrown_away() -> None:
    harness = TierHarness()
    harness.foreign(memory("k", 1))
    harness.source.gate.clear()
    load = asyncio.create_task(harness.tier.load(SCOPE, SPACE))
    await harness.source.rows_read.wait()
    harness.tier.changed(None)
    harness.source.gate.set()
    assert not await load
    assert await harness.keys() is None


async def test_another_model_drops_what_is_held() -> None:
    harness = TierHarness()
    harness.foreign(memory("k", 1))
    await harness.loaded()
    assert await harness.tier.shard(SCOPE, VectorSpace("other", 8)) is None
    assert await harness.keys() is None


async def test_zero_megabytes_hold_nothing() -> None:
    harness = TierHarness(max_bytes=0)
    harness.foreign(memory("k", 1))
    search(harness, SCOPE, "r1")
    search(harness, SCOPE, "r2")
    assert not await harness.tier.load(SCOPE, SPACE)


async def test_the_least_recently_used_namespace_leaves_for_one_that_is_used_more() -> None:
    alone = filled(TierHarness())
    await alone.loaded()
    harness = filled(TierHarness(max_bytes=int(alone.tier.size_bytes * 1.7)))
    await harness.loaded()
    used = harness.clock.monotonic_s()
    harness.clock.advance(10)
    assert not await harness.tier.load(OTHER, SPACE, used - 5)
    assert await harness.keys() is not None
    harness.clock.advance(10)
    assert await harness.tier.load(OTHER, SPACE, harness.clock.monotonic_s())
    assert await harness.keys() is None
    assert harness.tier.facts().namespaces == 1


def filled(harness: TierHarness) -> TierHarness:
    for scope in (SCOPE, OTHER):
        for number in range(60):
            harness.foreign(memory(f"k{number}", number + 1, scope=scope), [unit(number)])
    return harness


async def test_a_namespace_above_the_bound_is_not_held() -> None:
    harness = TierHarness(max_bytes=50_000)
    for number in range(200):
        harness.foreign(memory(f"k{number}", number + 1), [unit(number)])
    assert not await harness.tier.load(SCOPE, SPACE)
    assert harness.tier.size_bytes == 0


async def test_the_bound_holds_while_namespaces_grow_and_what_is_counted_is_what_they_take() -> None:
    bound = 900_000
    harness = TierHarness(max_bytes=bound)
    await harness.loaded()
    await harness.loaded(OTHER)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        most = version = 0
        while version < 4_000 and len(harness.tier._held) == 2:
            version += 1
            scope = SCOPE if version % 3 else OTHER
            row = harness.source.memory_row(
                memory(f"key-{version}", version, f"coffee number {version} of the morning", scope=scope)
            )
            harness.tier.stored(scope, "memory", [row])
            most = max(most, harness.tier.size_bytes)
            assert most <= bound
        if len(harness.tier._held) == 2:
            taken = tracemalloc.get_traced_memory()[0] - before
            assert taken < most * 1.25
    finally:
        tracemalloc.stop()
    assert len(harness.tier._held) == 1


async def test_many_rewrites_of_one_row_make_the_namespace_be_read_anew_while_it_goes_on_answering() -> None:
    harness = TierHarness()
    await harness.loaded()
    for version in range(1, 1_300):
        harness.store(memory("counter", version, f"value {version}"), [unit(1)])
    assert SCOPE in harness.tier._wanted
    assert await harness.keys() == ["counter"]
    await harness.loaded()
    shard = await harness.tier.shard(SCOPE, SPACE)
    assert shard is not None
    assert len(shard.packed) == 1


async def test_long_tails_of_terms_are_merged_beside_the_searches() -> None:
    harness = TierHarness()
    await harness.loaded()
    for version in range(1, 700):
        harness.store(memory(f"k{version}", version, f"coffee word{version}"), [unit(1)])
    tasks = list(harness.tier._tasks)
    assert tasks
    await asyncio.gather(*tasks)
    shard = await harness.tier.shard(SCOPE, SPACE)
    assert shard is not None
    assert not shard.postings.wants_merge
    assert reading.statistics(shard, Filter(), NOW).rows == 699
