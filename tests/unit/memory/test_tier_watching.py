"""Whatever passes the watched database is told to the tier: what is certain as rows, what is not as doubt."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest
from support.tier import OTHER_TABLE, SCOPE, TierHarness, memory, unit

from loom_common.clickhouse import Parameters, Row, Rows, Settings, Table
from loom_common.errors import BackendUnavailable, Overloaded
from loom_memory.store.memories import TABLE as MEMORIES
from loom_memory.tier.watching import HARMLESS, WatchedClickHouse


class FakeClickHouse:
    """Takes rows and statements, or fails as it is told."""

    database, cluster, exclusive = "loom", "", True

    def __init__(self) -> None:
        self.fails: BaseException | None = None
        self.done: list[str] = []

    async def query(
        self,
        sql: str,
        parameters: Parameters | None = None,
        *,
        settings: Settings | None = None,
        timeout_s: float | None = None,
    ) -> Rows:
        self.done.append(sql)
        return Rows((), [])

    async def command(
        self,
        sql: str,
        parameters: Parameters | None = None,
        *,
        settings: Settings | None = None,
        timeout_s: float | None = None,
    ) -> None:
        await self._do(sql)

    async def insert(self, table: Table, rows: Sequence[Sequence[object]]) -> None:
        await self._do(table.name)

    async def stream(
        self,
        sql: str,
        parameters: Parameters | None = None,
        *,
        settings: Settings | None = None,
        timeout_s: float | None = None,
    ) -> AsyncGenerator[Sequence[Row], None]:
        self.done.append(sql)
        yield []

    async def ping(self) -> None:
        self.done.append("ping")

    async def close(self) -> None:
        self.done.append("close")

    async def _do(self, what: str) -> None:
        if self.fails is not None:
            raise self.fails
        self.done.append(what)


@pytest.fixture
async def harness() -> TierHarness:
    made = TierHarness()
    made.foreign(memory("a", 1), [unit(1)])
    await made.loaded()
    return made


async def test_an_insert_is_told_before_its_caller_hears_of_it(harness: TierHarness) -> None:
    watched = WatchedClickHouse(FakeClickHouse(), harness.tier)
    await watched.insert(MEMORIES, [harness.source.memory_row(memory("b", 2))])
    assert await harness.keys() == ["a", "b"]
    await watched.insert(OTHER_TABLE, [("acme", "team")])
    assert await harness.keys() == ["a", "b"]


@pytest.mark.parametrize(
    ("error", "is_held"),
    [
        (BackendUnavailable("gone"), False),
        (asyncio.CancelledError(), False),
        (Overloaded("too many wait"), True),
    ],
)
async def test_an_insert_that_may_have_been_stored_is_doubted(
    harness: TierHarness, error: BaseException, is_held: bool
) -> None:
    inner = FakeClickHouse()
    inner.fails = error
    with pytest.raises(type(error)):
        await WatchedClickHouse(inner, harness.tier).insert(MEMORIES, [harness.source.memory_row(memory("b", 2))])
    assert (await harness.keys() is not None) is is_held


@pytest.mark.parametrize(
    ("sql", "names", "settings", "is_held", "may_load"),
    [
        ("ALTER TABLE memory DELETE WHERE 1", ("acme", "team"), {"mutations_sync": 2}, False, True),
        ("ALTER TABLE memory DELETE WHERE 1", ("acme", "team"), {}, False, False),
        ("ALTER TABLE memory DELETE WHERE 1", ("acme", "other"), {"mutations_sync": 2}, True, True),
        ("INSERT INTO memory_embeddings SELECT 1", ("", ""), {}, False, True),
        ("ALTER TABLE memory_versions DELETE WHERE 1", ("acme", "team"), {}, True, True),
        ("OPTIMIZE TABLE memory FINAL", ("", ""), {}, True, True),
        (min(HARMLESS), ("acme", "team"), {}, True, True),
    ],
)
async def test_a_statement_that_changes_rows_drops_what_it_may_have_changed(
    harness: TierHarness, sql: str, names: tuple[str, str], settings: Settings, is_held: bool, may_load: bool
) -> None:
    watched = WatchedClickHouse(FakeClickHouse(), harness.tier, HARMLESS)
    await watched.command(sql, {"org": names[0], "namespace": names[1]}, settings=settings)
    assert (await harness.keys() is not None) is is_held
    if not is_held:
        assert await harness.tier.load(SCOPE, harness.source.space) is may_load


async def test_everything_else_goes_through() -> None:
    inner = FakeClickHouse()
    watched = WatchedClickHouse(inner, TierHarness().tier)
    await watched.query("SELECT 1")
    async for _ in watched.stream("SELECT 2"):
        pass
    await watched.ping()
    await watched.close()
    assert inner.done == ["SELECT 1", "SELECT 2", "ping", "close"]
    assert (watched.database, watched.cluster, watched.exclusive) == ("loom", "", True)
