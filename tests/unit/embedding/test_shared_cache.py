"""The cache that processes share: scopes, bounds, and that it fails no call."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime

import numpy as np
import pytest

from loom_common.clock import FakeClock
from loom_common.errors import BackendUnavailable, LoomError
from loom_embedding.app.shared_cache import Purpose, SharedCache
from loom_embedding.domain.embedder import Vector
from loom_embedding.store.vectors import CachedVector

VECTOR = np.asarray([1.0, 0.0], dtype=np.float32)


class Table:
    """Keeps rows in memory; can fail, and can be held up."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], CachedVector] = {}
        self.failure: LoomError | None = None
        self.go = asyncio.Event()
        self.go.set()
        self.reads: list[tuple[str, tuple[str, ...]]] = []
        self.batches: list[int] = []

    async def read(self, org: str, keys: Sequence[str], now: datetime, timeout_s: float) -> Mapping[str, Vector]:
        self.reads.append((org, tuple(keys)))
        await self._pass()
        held = {key: self.rows.get((org, key)) for key in keys}
        return {key: row.vector for key, row in held.items() if row is not None and row.expires_at > now}

    async def write(self, rows: Sequence[CachedVector]) -> None:
        await self._pass()
        self.batches.append(len(rows))
        self.rows |= {(row.org, row.key): row for row in rows}

    async def _pass(self) -> None:
        await self.go.wait()
        if self.failure is not None:
            raise self.failure


class Rig:
    def __init__(self, max_chars: int = 100) -> None:
        self.clock = FakeClock()
        self.table = Table()
        self.cache = SharedCache(self.table, "m", max_chars=max_chars, ttl_s=60, clock=self.clock)

    async def keep(self, org: str, text: str, purpose: Purpose = Purpose.QUERY) -> None:
        self.cache.put(org, purpose, {text: VECTOR})
        await self.cache.aclose()

    async def held(self, org: str, text: str, purpose: Purpose = Purpose.QUERY) -> bool:
        return bool(await self.cache.get(org, purpose, [text]))


async def test_a_vector_is_found_again_until_its_time_is_over() -> None:
    rig = Rig()
    await rig.keep("acme", "dark mode")
    found = await rig.cache.get("acme", Purpose.QUERY, ["dark mode", "light mode"])
    assert list(found) == ["dark mode"]
    assert np.array_equal(found["dark mode"], VECTOR)
    rig.clock.advance(61)
    assert not await rig.held("acme", "dark mode")


@pytest.mark.parametrize(("org", "purpose"), [("globex", Purpose.QUERY), ("acme", Purpose.STORED), ("", Purpose.QUERY)])
async def test_another_organisation_or_path_finds_nothing(org: str, purpose: Purpose) -> None:
    rig = Rig()
    await rig.keep("acme", "dark mode")
    assert not await rig.held(org, "dark mode", purpose)


async def test_two_names_cannot_be_shifted_into_one_key() -> None:
    cache = Rig().cache
    keys = {cache.key(org, Purpose.QUERY, text) for org, text in (("a", "bc"), ("ab", "c"), ("abc", ""))}
    assert len(keys) == 3


async def test_a_call_without_an_organisation_and_a_long_text_never_reach_the_table() -> None:
    rig = Rig(max_chars=5)
    await rig.keep("", "short")
    await rig.keep("acme", "longer")
    assert not await rig.held("", "short")
    assert not await rig.held("acme", "longer")
    assert rig.table.reads == []
    assert rig.table.rows == {}


async def test_a_table_that_fails_is_a_miss_and_is_left_alone_for_a_while() -> None:
    rig = Rig()
    await rig.keep("acme", "dark mode")
    rig.table.failure = BackendUnavailable("scripted")
    assert not await rig.held("acme", "dark mode")
    assert not await rig.held("acme", "dark mode")
    assert len(rig.table.reads) == 1
    rig.table.failure = None
    rig.clock.advance(6)
    assert await rig.held("acme", "dark mode")


async def test_a_table_that_hangs_is_a_miss_within_its_bound() -> None:
    rig = Rig()
    rig.table.go.clear()
    async with asyncio.timeout(5):
        assert not await rig.held("acme", "dark mode")


async def test_a_failed_write_loses_its_rows_and_nothing_else() -> None:
    rig = Rig()
    rig.table.failure = BackendUnavailable("scripted")
    await rig.keep("acme", "one")
    rig.table.failure = None
    await rig.keep("acme", "two")
    rig.clock.advance(6)
    assert not await rig.held("acme", "one")
    assert await rig.held("acme", "two")


async def test_what_waits_is_written_in_batches_and_bounded() -> None:
    rig = Rig()
    rig.table.go.clear()
    rig.cache.put("acme", Purpose.STORED, {f"text {number}": VECTOR for number in range(5_000)})
    rig.table.go.set()
    await rig.cache.aclose()
    assert sum(rig.table.batches) == 2_000
    assert max(rig.table.batches) <= 256


async def test_what_a_stranger_asks_looks_the_same_whether_or_not_another_organisation_asked_it_before() -> None:
    traces = []
    for asked_before in (False, True):
        rig = Rig()
        if asked_before:
            await rig.keep("acme", "the merger closes in march")
        assert not await rig.held("globex", "the merger closes in march")
        traces.append([read for read in rig.table.reads if read[0] == "globex"])
    assert traces[0] == traces[1]
