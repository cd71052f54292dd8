import asyncio

import pytest

from loom_common.local_locks import KeyedLocks


async def test_two_holders_of_one_key_come_one_after_the_other() -> None:
    locks = KeyedLocks()
    inside, most = 0, 0

    async def work() -> None:
        nonlocal inside, most
        async with locks.all_of([("a",)]):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(work() for _ in range(20)))
    assert most == 1


async def test_holders_of_the_same_keys_in_other_orders_never_wait_for_each_other() -> None:
    locks = KeyedLocks()

    async def work(*keys: str) -> None:
        async with locks.all_of([(key,) for key in keys]):
            await asyncio.sleep(0)

    async with asyncio.timeout(5):
        await asyncio.gather(*(work("a", "b", "a") if turn % 2 else work("b", "a") for turn in range(50)))


async def test_a_waiter_that_gives_up_leaves_the_lock_usable() -> None:
    locks = KeyedLocks()
    async with locks.all_of([("a",)]):
        waiting = asyncio.create_task(locks.all_of([("a",)]).__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
    async with asyncio.timeout(5), locks.all_of([("a",)]):
        pass


async def test_a_wait_that_is_too_long_ends_before_the_block() -> None:
    locks = KeyedLocks()
    async with locks.one("a"):
        with pytest.raises(TimeoutError):
            async with locks.one("a", wait_s=0):
                pytest.fail("two held one key")
    async with asyncio.timeout(5), locks.one("a", wait_s=0):
        pass
