"""Leases against the real engine, within one process."""

import asyncio

import pytest

from loom_common.clickhouse import ClickHouse
from loom_common.errors import BackendUnavailable
from loom_common.leases import Lease, LeaseLost, Leases
from loom_common.migrations import migrate


@pytest.fixture
async def store(any_clickhouse: ClickHouse) -> ClickHouse:
    await migrate(any_clickhouse, "common", "loom_common")
    return any_clickhouse


def _leases(store: ClickHouse) -> Leases:
    return Leases(store, "svc")


async def _acquired(leases: Leases, name: str, ttl_s: float) -> Lease:
    lease = await leases.acquire(name, ttl_s)
    assert lease is not None
    return lease


async def _acquired_when_free(leases: Leases, name: str) -> Lease:
    async with asyncio.timeout(10):
        while (lease := await leases.acquire(name, 30)) is None:
            pass
    return lease


async def test_a_held_lease_is_not_given_to_another(store: ClickHouse) -> None:
    lease = await _acquired(_leases(store), "leader", 30)
    assert await _leases(store).acquire("leader", 30) is None
    await lease.check()


async def test_a_released_lease_goes_to_the_next_with_a_higher_fence(store: ClickHouse) -> None:
    first = await _acquired(_leases(store), "leader", 30)
    await first.release()
    second = await _acquired(_leases(store), "leader", 30)
    assert second.fence > first.fence
    with pytest.raises(LeaseLost):
        await first.check()
    with pytest.raises(LeaseLost):
        await first.renew()
    await second.check()


async def test_an_expired_lease_goes_to_the_next_and_cannot_be_revived(store: ClickHouse) -> None:
    first = await _acquired(_leases(store), "leader", 0.2)
    second = await _acquired_when_free(_leases(store), "leader")
    assert second.fence > first.fence
    with pytest.raises(LeaseLost):
        await first.renew()
    await second.check()


async def test_a_taken_lease_ends_with_its_block_and_passes_who_meets_it(store: ClickHouse) -> None:
    first, other = _leases(store), _leases(store)
    async with first.taken("leader", 30, note="since noon") as lease:
        assert lease is not None
        assert await other.holder_of("leader") == f"{first.holder} since noon"
        async with other.taken("leader", 30) as passed:
            assert passed is None
        await lease.check()
    assert await other.holder_of("leader") is None
    with pytest.raises(ZeroDivisionError):
        async with other.taken("leader", 30):
            raise ZeroDivisionError
    async with first.taken("leader", 30) as lease:
        assert lease is not None


async def test_a_renewed_lease_runs_longer_than_its_first_time(store: ClickHouse) -> None:
    other = _leases(store)
    async with _leases(store).held("leader", 0.6, wait_s=0) as lease:
        deadline = asyncio.get_running_loop().time() + 1.5
        while asyncio.get_running_loop().time() < deadline:
            assert await other.acquire("leader", 30) is None
            await lease.check()
    assert await other.acquire("leader", 30) is not None


async def test_contenders_get_one_lease_between_them(store: ClickHouse) -> None:
    for round_ in range(5):
        taken = await asyncio.gather(*(_leases(store).acquire(f"round {round_}", 30) for _ in range(6)))
        assert len([lease for lease in taken if lease is not None]) == 1


async def test_waiting_for_a_lease_ends_with_an_error(store: ClickHouse) -> None:
    await _acquired(_leases(store), "leader", 30)
    with pytest.raises(BackendUnavailable):
        async with _leases(store).held("leader", 30, wait_s=0.1):
            pytest.fail("the lease was held by another")


async def test_names_and_services_do_not_meet(store: ClickHouse) -> None:
    await _acquired(Leases(store, "one"), "a", 30)
    await _acquired(Leases(store, "one"), "b", 30)
    await _acquired(Leases(store, "two"), "a", 30)
