import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from loom_common.clickhouse.pool import HandlePool
from loom_common.errors import BackendUnavailable, DeadlineExceeded


class Handle:
    """Counts itself; a call on it may block until it is killed."""

    made = 0

    def __init__(self) -> None:
        Handle.made += 1
        self.number = Handle.made
        self.closed = False

    def close(self) -> None:
        self.closed = True


class Killer:
    def __init__(self) -> None:
        self.marks: list[str] = []
        self.entered = threading.Event()
        self.released = threading.Event()

    def kill(self, mark: str) -> None:
        self.marks.append(mark)
        self.released.set()

    def block(self, _: Handle) -> None:
        self.entered.set()
        assert self.released.wait(10)
        raise RuntimeError("killed")


@pytest.fixture
def killer() -> Killer:
    return Killer()


@pytest.fixture
async def pool(killer: Killer) -> AsyncIterator[HandlePool[Handle]]:
    Handle.made = 0
    pool = HandlePool(Handle, 1, killer.kill)
    await pool.start()
    yield pool
    await pool.close()


async def test_a_handle_is_used_again_after_it_succeeded(pool: HandlePool[Handle]) -> None:
    numbers = [await pool.run(lambda handle: handle.number, "m", 5) for _ in range(3)]
    assert numbers == [1, 1, 1]


async def test_a_handle_whose_call_failed_is_closed_and_never_used_again(pool: HandlePool[Handle]) -> None:
    seen: list[Handle] = []

    def fail(handle: Handle) -> None:
        seen.append(handle)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        await pool.run(fail, "m", 5)
    assert seen[0].closed
    assert await pool.run(lambda handle: handle.number, "m", 5) == 2


async def test_a_cancelled_call_is_killed_and_its_handle_comes_back_after_its_thread(
    pool: HandlePool[Handle], killer: Killer
) -> None:
    running = asyncio.create_task(pool.run(killer.block, "mark-1", 60))
    assert await asyncio.to_thread(killer.entered.wait, 5)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await pool.run(lambda handle: handle.number, "m", 5) == 2
    assert set(killer.marks) == {"mark-1"}


async def test_a_call_beyond_its_time_is_killed(pool: HandlePool[Handle], killer: Killer) -> None:
    with pytest.raises(DeadlineExceeded):
        await pool.run(killer.block, "mark-2", -0.45)  # what is left of the grace
    assert await pool.run(lambda handle: handle.number, "m", 5) == 2
    assert killer.marks[0] == "mark-2"


async def test_waiting_for_a_handle_counts_as_time(pool: HandlePool[Handle], killer: Killer) -> None:
    holder = asyncio.create_task(pool.run(killer.block, "m", 60))
    assert await asyncio.to_thread(killer.entered.wait, 5)
    with pytest.raises(DeadlineExceeded):
        await pool.run(lambda handle: handle.number, "m", -0.45)
    killer.released.set()
    with pytest.raises(RuntimeError):
        await holder


async def test_a_discarded_handle_is_replaced(pool: HandlePool[Handle]) -> None:
    async with pool.borrow("m") as borrowed:
        assert await borrowed.call(lambda handle: handle.number) == 1
        borrowed.discard = True
    assert await pool.run(lambda handle: handle.number, "m", 5) == 2


async def test_a_closed_pool_refuses(pool: HandlePool[Handle]) -> None:
    await pool.close()
    await pool.close()
    with pytest.raises(BackendUnavailable):
        await pool.run(lambda handle: handle.number, "m", 5)


async def test_a_start_that_is_cancelled_half_way_leaves_no_handle_open(killer: Killer) -> None:
    opened: list[Handle] = []
    entered, release = threading.Event(), threading.Event()

    def open_handle() -> Handle:
        entered.set()
        assert release.wait(10)
        opened.append(Handle())
        return opened[-1]

    pool = HandlePool(open_handle, 2, killer.kill)
    start = asyncio.create_task(pool.start())
    await asyncio.to_thread(entered.wait, 10)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    asyncio.get_running_loop().call_later(0.05, release.set)
    await pool.close()
    assert [handle.closed for handle in opened] == [True]
