"""Conditional writes and idempotency keys against the real engine, within one process."""

import asyncio

import pytest

from loom_common.clickhouse import ClickHouse
from loom_common.conditional_writes import Claims, claim_name
from loom_common.errors import Conflict
from loom_common.idempotency import IdempotencyKeys, KeyedRequest
from loom_common.migrations import migrate


@pytest.fixture
async def store(any_clickhouse: ClickHouse) -> ClickHouse:
    await migrate(any_clickhouse, "common", "loom_common")
    return any_clickhouse


async def test_contenders_with_their_own_claims_hold_one_after_the_other(store: ClickHouse) -> None:
    inside = 0

    async def contend() -> None:
        nonlocal inside
        async with Claims(store, "svc").hold("row", wait_s=30) as hold:
            inside += 1
            assert inside == 1
            await hold.confirm()
            inside -= 1

    await asyncio.gather(*(contend() for _ in range(6)))


async def test_contenders_of_one_process_meet_in_its_lock_first(store: ClickHouse) -> None:
    claims = Claims(store, "svc")

    async def contend() -> int:
        async with claims.hold("row", wait_s=30) as hold:
            return hold.epoch

    epochs = await asyncio.gather(*(contend() for _ in range(10)))
    assert sorted(epochs) == list(range(1, 11))  # none was lost to a tie


async def test_a_held_name_is_a_conflict_after_the_wait(store: ClickHouse) -> None:
    async with Claims(store, "svc").hold("row"):
        with pytest.raises(Conflict):
            async with Claims(store, "svc").hold("row", wait_s=0.05):
                pytest.fail("two held one name")


async def test_a_hold_that_ran_out_is_not_confirmed_and_the_next_writes_above_it(store: ClickHouse) -> None:
    async with Claims(store, "svc").hold("row", hold_s=0.05) as late:
        async with Claims(store, "svc").hold("row", wait_s=10) as next_:
            await next_.confirm()
            assert next_.version_after(1000) > late.version_after(1000)
        with pytest.raises(Conflict):
            await late.confirm()


async def test_a_renewed_hold_outlasts_its_time_and_ends_with_its_block(store: ClickHouse) -> None:
    async with Claims(store, "svc").hold("row", hold_s=0.3, renewed=True) as hold:
        with pytest.raises(Conflict):
            async with Claims(store, "svc").hold("row", wait_s=1):
                pytest.fail("two held one name")
        await hold.confirm()
    async with Claims(store, "svc").hold("row", wait_s=0):
        pass


async def test_a_block_that_raises_ends_its_hold(store: ClickHouse) -> None:
    with pytest.raises(LookupError):
        async with Claims(store, "svc").hold("row"):
            raise LookupError
    async with Claims(store, "svc").hold("row", wait_s=0):
        pass


def test_names_of_different_identities_differ() -> None:
    assert claim_name("a", "bc") != claim_name("ab", "c")
    assert claim_name("", "a") != claim_name("a", "")


def _request(key: str = "k", digest: str = "d") -> KeyedRequest:
    return KeyedRequest(org="acme", subject="sub", op="memory.set", key=key, digest=digest)


async def test_the_same_key_gets_the_first_answer_and_runs_once(store: ClickHouse) -> None:
    runs = 0

    async def call() -> bytes:
        nonlocal runs
        runs += 1
        return b"\x00\xff answer"

    # One per process; of an engine that one process has to itself there is only one.
    shared = IdempotencyKeys(store, "svc")

    async def ask() -> bytes:
        keys = shared if store.exclusive else IdempotencyKeys(store, "svc")
        return await keys.once(_request(), call, wait_s=20)

    assert await asyncio.gather(*(ask() for _ in range(5))) == [b"\x00\xff answer"] * 5
    assert runs == 1


async def test_a_key_with_another_body_is_a_conflict(store: ClickHouse) -> None:
    keys = IdempotencyKeys(store, "svc")

    async def call() -> bytes:
        return b""

    await keys.once(_request(), call, wait_s=1)
    with pytest.raises(Conflict) as caught:
        await keys.once(_request(digest="other"), call, wait_s=1)
    assert caught.value.detail == {"reason": "other_body"}


async def test_a_call_that_fails_may_be_sent_again(store: ClickHouse) -> None:
    keys = IdempotencyKeys(store, "svc")

    async def fail() -> bytes:
        raise LookupError

    async def work() -> bytes:
        return b"ok"

    with pytest.raises(LookupError):
        await keys.once(_request(), fail, wait_s=1)
    assert await keys.once(_request(), work, wait_s=1) == b"ok"


_LEFT_BY_THE_DEAD = """
INSERT INTO claims (service, name, epoch, token, done, hold_ms)
SELECT service, {name:String}, 1, 'dead', 0, max(hold_ms) FROM claims WHERE done = 0 GROUP BY service
"""


async def test_a_call_that_is_sent_again_after_its_process_died_runs(store: ClickHouse) -> None:
    started = asyncio.Event()

    async def stuck() -> bytes:
        started.set()
        await asyncio.Event().wait()
        return b"never"

    async def work() -> bytes:
        return b"ok"

    dying = asyncio.create_task(IdempotencyKeys(store, "svc").once(_request("other"), stuck))
    try:
        async with asyncio.timeout(10):
            await started.wait()
        if not store.exclusive:
            name = claim_name("idempotency", "acme", "sub", "memory.set", "k")
            await store.command(_LEFT_BY_THE_DEAD, {"name": name})
        key = "other" if store.exclusive else "k"
        assert await IdempotencyKeys(store, "svc").once(_request(key), work) == b"ok"
    finally:
        dying.cancel()
        await asyncio.wait({dying})
