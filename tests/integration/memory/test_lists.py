import asyncio
from datetime import UTC, datetime

import pytest
from support.memory import MemoryHarness

from loom_common.errors import InvalidArgument
from loom_memory.domain.memory import Filter


async def test_the_list_is_newest_write_first(any_memory: MemoryHarness) -> None:
    for key in ("a", "b", "c"):
        await any_memory.set(key, "v")
    await any_memory.set("a", "v2")
    assert [memory.identity.key for memory in await any_memory.list_all(page_size=2)] == ["a", "c", "b"]


async def test_forty_five_of_one_user_are_paged_to_the_end(any_memory: MemoryHarness) -> None:
    await any_memory.fill({f"k{number}": "v" for number in range(45)}, user_id="u")
    await any_memory.fill({f"k{number}": "v" for number in range(45)}, user_id="other")
    memories = await any_memory.list_all(page_size=10, wanted=Filter(user_id="u"))
    keys = [memory.identity.key for memory in memories]
    assert sorted(keys) == sorted(f"k{number}" for number in range(45))
    assert {memory.identity.user_id for memory in memories} == {"u"}


async def test_pages_have_no_gap_and_no_repeat_while_rows_are_written(any_memory: MemoryHarness) -> None:
    stable = {f"s{number:03}": "stays" for number in range(120)}
    await any_memory.fill(stable)
    stop = asyncio.Event()

    async def write(worker: int) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            await any_memory.set(f"s{(number * 7 + worker * 31) % 120:03}", f"changed {worker} {number}")
            await any_memory.set(f"new-{worker}-{number}", "made meanwhile")

    writers = [asyncio.create_task(write(worker)) for worker in range(3)]
    try:
        for _ in range(4):
            keys = [memory.identity.key for memory in await any_memory.list_all(page_size=11)]
            assert len(set(keys)) == len(keys)
            assert set(stable) <= set(keys)
    finally:
        stop.set()
        await asyncio.gather(*writers)


async def test_a_token_of_another_list_is_refused(memory: MemoryHarness) -> None:
    await memory.fill({f"k{number}": "v" for number in range(5)})
    reader = memory.parts.reader
    page = await reader.list(memory.scope, Filter(), page_size=2, page_token="")
    with pytest.raises(InvalidArgument):
        await reader.list(memory.scope, Filter(user_id="u"), page_size=2, page_token=page.next_page_token)
    with pytest.raises(InvalidArgument):
        await reader.list(memory.scope, Filter(), page_size=2, page_token="nonsense")


async def test_a_page_of_long_values_is_cut_and_goes_on(memory: MemoryHarness) -> None:
    await memory.fill({f"k{number:03}": f"{number} " + "x" * 65_000 for number in range(80)})
    page = await memory.parts.reader.list(memory.scope, Filter(), page_size=500, page_token="")
    assert 0 < len(page.memories) < 80
    assert page.next_page_token
    keys = [each.identity.key for each in await memory.list_all(page_size=500)]
    assert sorted(keys) == [f"k{number:03}" for number in range(80)]


async def test_a_time_keeps_its_utc_day(any_memory: MemoryHarness) -> None:
    moment = datetime(2026, 3, 1, 2, 0, tzinfo=UTC)
    await any_memory.set("k", "at two in the morning", event_time=moment)
    memory = await any_memory.get("k")
    assert memory is not None
    assert memory.content.event_time == moment
    assert memory.content.event_time.utcoffset() == moment.utcoffset()
