"""Guides and snapshots of two processes over one database."""

import asyncio

from support.memory import memory_over

from loom_common.clickhouse import ClickHouse
from loom_common.clock import FakeClock
from loom_common.errors import Conflict


async def test_two_processes_tell_the_same_and_the_span_before_while_they_count_anew(
    http_clickhouse: ClickHouse,
) -> None:
    clock = FakeClock()
    one, other = [await memory_over(http_clickhouse, clock=clock) for _ in range(2)]
    scope = one.scope
    await one.set("a", "The office is in Lisbon", pinned=True)
    both = [process.parts.guides for process in (one, other)]
    first, second = await asyncio.gather(*(guides.health.snapshot(scope) for guides in both))
    assert first == second
    assert first is not None
    assert first.health.memories == 1
    clock.advance(1)
    assert await both[1].health.snapshot(scope) == first
    found = await asyncio.gather(*(guides.mentor.snapshot(scope) for guides in both))
    assert found[0] == found[1] is not None
    rows = await http_clickhouse.query("SELECT kind, count() FROM namespace_snapshots GROUP BY kind ORDER BY kind")
    assert [tuple(row) for row in rows] == [("health", 1), ("mentor", 1)]

    await one.set("b", "The office has two rooms")
    clock.advance(3600)
    assert await both[0].health.snapshot(scope) == first
    async with asyncio.timeout(10):
        while (newest := await both[1].health.snapshot(scope)) == first:  # noqa: ASYNC110 - it lies in the store
            await asyncio.sleep(0.02)
    assert newest is not None
    assert newest.health.memories == 2
    assert await both[0].health.snapshot(scope) == newest
    for process in (one, other):
        await process.parts.deletions.close()
        await process.parts.workers.close()


async def test_of_two_writers_of_a_guide_who_read_the_same_one_wins(http_clickhouse: ClickHouse) -> None:
    one, other = [await memory_over(http_clickhouse) for _ in range(2)]
    writing = [
        process.parts.guides.guides.set(one.scope, f"by {name}", f"human:{name}", 0)
        for process, name in ((one, "ann"), (other, "ben"))
    ]
    outcomes = await asyncio.gather(*writing, return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Conflict", "tuple"]
    assert any(isinstance(outcome, Conflict) for outcome in outcomes)
    guide = await other.parts.guides.guides.get(one.scope)
    assert guide is not None
    assert guide.revision == 1
    for process in (one, other):
        await process.parts.deletions.close()
        await process.parts.workers.close()
