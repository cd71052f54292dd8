"""Where several processes write one database, a search finds what any of them stored before it."""

import asyncio

from support.tier import NOW, SCOPE, SPACE, TierHarness, deleted, memory, unit

from loom_common.call import Call, bind
from loom_common.clock import FakeClock
from loom_memory.tier.currency import OVERLAP_NS

EARLY = FakeClock(NOW).now_ns() - OVERLAP_NS // 2


async def test_what_another_process_writes_replaces_and_deletes_is_seen_by_the_next_search() -> None:
    harness = TierHarness(exclusive=False)
    first, second = memory("a", EARLY), memory("b", EARLY + 1)
    harness.foreign(first, [unit(1)])
    harness.foreign(second, [unit(2)])
    await harness.loaded()
    assert await harness.keys() == ["a", "b"]
    harness.foreign(memory("c", EARLY + 2), [unit(3)])
    assert await harness.keys() == ["a", "b", "c"]
    harness.foreign(deleted(first, EARLY + 3))
    harness.foreign(memory("b", EARLY + 4, "tea"), [unit(4)])
    assert await harness.keys() == ["b", "c"]
    shard = await harness.tier.shard(SCOPE, SPACE)
    assert shard is not None
    assert shard.has_all_vectors


async def test_a_row_whose_version_is_lower_than_one_that_was_seen_is_not_missed() -> None:
    harness = TierHarness(exclusive=False)
    harness.foreign(memory("a", EARLY), [unit(1)])
    harness.foreign(memory("fast", EARLY + 9), [unit(1)])
    await harness.loaded()
    harness.foreign(memory("a", EARLY + 5, "tea"), [unit(2)])
    assert await harness.keys() == ["a", "fast"]
    shard = await harness.tier.shard(SCOPE, SPACE)
    assert shard is not None
    assert shard.version(memory("a", 1).identity) == EARLY + 5


async def test_a_difference_that_no_look_explains_leaves_the_search_to_the_database() -> None:
    harness = TierHarness(exclusive=False)
    harness.foreign(memory("new", EARLY), [unit(1)])
    await harness.loaded()
    harness.foreign(memory("very late", 1), [unit(1)])
    for _ in range(3):
        assert await harness.keys() is None
    # It is dropped and wanted anew.
    assert SCOPE in harness.tier._wanted
    await harness.loaded()
    assert await harness.keys() == ["new", "very late"]


async def test_vectors_that_a_worker_adds_later_are_seen() -> None:
    harness = TierHarness(exclusive=False)
    stub = memory("a", EARLY)
    harness.foreign(stub)
    await harness.loaded()
    harness.source.embeddings.append(harness.source.vector_row(stub, 0, unit(1)))
    shard = await harness.tier.shard(SCOPE, SPACE)
    assert shard is not None
    assert shard.has_all_vectors


async def test_the_calls_of_one_search_look_once_and_those_that_wait_share_a_look() -> None:
    harness = TierHarness(exclusive=False)
    harness.foreign(memory("a", EARLY), [unit(1)])
    await harness.loaded()
    with bind(Call(request_id="one")):
        await asyncio.gather(*(harness.tier.shard(SCOPE, SPACE) for _ in range(5)))
    assert harness.source.looks == 1
    await asyncio.gather(*(harness.tier.shard(SCOPE) for _ in range(20)))
    assert harness.source.looks <= 3


async def test_what_this_process_stores_is_seen_as_anybodys() -> None:
    harness = TierHarness(exclusive=False)
    await harness.loaded()
    harness.store(memory("mine", EARLY), [unit(1)])
    assert await harness.keys() == ["mine"]


async def test_a_request_that_writes_between_two_searches_finds_what_it_wrote() -> None:
    harness = TierHarness(exclusive=False)
    await harness.loaded()
    with bind(Call(request_id="one")):
        assert await harness.keys() == []
        harness.store(memory("mine", EARLY), [unit(1)])
        assert await harness.keys() == ["mine"]


async def test_calls_look_for_themselves_even_where_their_callers_give_them_one_identifier() -> None:
    harness = TierHarness(exclusive=False)
    first = memory("a", EARLY)
    harness.foreign(first, [unit(1)])
    await harness.loaded()
    with bind(Call(request_id="same")):
        assert await harness.keys() == ["a"]
    harness.foreign(deleted(first, EARLY + 1))
    with bind(Call(request_id="same")):
        assert await harness.keys() == []
