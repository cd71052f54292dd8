"""What both ways to an engine must do alike."""

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime, timedelta

import pytest

from loom_common.clickhouse import ClickHouse, StatementFailed, Table, own_write_reads
from loom_common.errors import BackendUnavailable, DeadlineExceeded, InternalError

ITEMS = Table.of(
    "items",
    key="String",
    text="LowCardinality(String)",
    vector="Array(Float32)",
    at="Nullable(DateTime64(3, 'UTC'))",
    number="UInt64",
)
MAKE_ITEMS = """
CREATE TABLE items (
    key String, text LowCardinality(String), vector Array(Float32), at Nullable(DateTime64(3, 'UTC')), number UInt64
) ENGINE = MergeTree ORDER BY key
"""
NOON = datetime(2026, 11, 30, 12, 0, 0, 123000, tzinfo=UTC)
HARD_TEXT = 'it\'s \\ "two"\nlines\ttab \0 nul {x:String} %s 配置 🙂 `;--'


@pytest.fixture
async def items(any_clickhouse: ClickHouse) -> ClickHouse:
    await any_clickhouse.command(MAKE_ITEMS)
    return any_clickhouse


async def test_inserted_rows_come_back_as_they_were_given(items: ClickHouse) -> None:
    row = ("k", HARD_TEXT, [0.5, -1.0], NOON, 2**64 - 1)
    await items.insert(ITEMS, [row])
    result = await items.query("SELECT key, text, vector, at, number FROM items ORDER BY key")
    assert result.columns == ("key", "text", "vector", "at", "number")
    assert result.rows == [row]


async def test_null_and_empty_values_come_back(items: ClickHouse) -> None:
    await items.insert(ITEMS, [("", "", [], None, 0)])
    assert (await items.query("SELECT key, text, vector, at, number FROM items")).rows == [("", "", [], None, 0)]


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("String", HARD_TEXT),
        ("Nullable(String)", None),
        ("Array(String)", ["a'b", "c\\d", HARD_TEXT]),
        ("Array(Float32)", [index / 2 for index in range(6000)]),
        ("UInt64", 2**64 - 1),
        ("DateTime64(3, 'UTC')", NOON),
    ],
)
async def test_a_bound_value_reaches_the_engine_unchanged(
    any_clickhouse: ClickHouse, type_: str, value: object
) -> None:
    rows = await any_clickhouse.query(f"SELECT {{value:{type_}}} AS value", {"value": value})
    assert rows.scalar() == value


async def test_an_inserted_row_is_visible_to_the_next_read(items: ClickHouse) -> None:
    for number in range(20):
        await items.insert(ITEMS, [(str(number), "", [], None, number)])
        found = await items.query("SELECT count() FROM items WHERE key = {key:String}", {"key": str(number)})
        assert found.scalar() == 1


async def test_rows_of_many_callers_are_stored_in_few_parts(items: ClickHouse) -> None:
    await asyncio.gather(*(items.insert(ITEMS, [(str(number), "", [], None, number)]) for number in range(200)))
    assert (await items.query("SELECT count(), uniqExact(key) FROM items")).rows == [(200, 200)]
    parts = await items.query(
        "SELECT count() FROM system.parts WHERE table = 'items' AND database = {database:String}",
        {"database": items.database},
    )
    assert parts.scalar() < 20


async def test_a_bad_row_fails_its_own_caller_only(items: ClickHouse) -> None:
    outcomes = await asyncio.gather(
        items.insert(ITEMS, [("first", "", [], None, 1)]),
        items.insert(ITEMS, [("bad", "", ["not a number"], None, 1)]),
        items.insert(ITEMS, [("negative", "", [], None, -1)]),
        items.insert(ITEMS, [("last", "", [], None, 1)]),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [type(None), InternalError, InternalError, type(None)]
    assert (await items.query("SELECT key FROM items ORDER BY key")).rows == [("first",), ("last",)]


async def test_closing_stores_the_rows_that_still_wait(items: ClickHouse) -> None:
    inserts = [asyncio.ensure_future(items.insert(ITEMS, [(str(number), "", [], None, 1)])) for number in range(50)]
    await asyncio.sleep(0)  # lets each join the queue
    await items.close()
    assert await asyncio.gather(*inserts) == [None] * 50
    with pytest.raises(BackendUnavailable):
        await items.insert(ITEMS, [("late", "", [], None, 1)])


async def test_a_refused_statement_is_an_internal_error_without_the_engines_text(any_clickhouse: ClickHouse) -> None:
    with pytest.raises(InternalError) as caught:
        await any_clickhouse.query("SELECT secret_column FROM system.one")
    assert "secret_column" not in str(caught.value)
    cause = caught.value.__cause__
    assert isinstance(cause, StatementFailed)
    assert (cause.code, cause.name) == (47, "UNKNOWN_IDENTIFIER")


async def test_a_statement_beyond_its_time_is_ended(any_clickhouse: ClickHouse) -> None:
    with pytest.raises(DeadlineExceeded):
        await any_clickhouse.query("SELECT count() FROM numbers(1000000000000) WHERE number % 7 = 3", timeout_s=0.3)


async def test_a_cancelled_call_ends_its_statement(any_clickhouse: ClickHouse) -> None:
    mark = f"cancel me {any_clickhouse.database}"
    running = asyncio.ensure_future(
        any_clickhouse.query(
            "SELECT count() FROM numbers(1000000000000) WHERE number % 7 = 3", settings={"log_comment": mark}
        )
    )
    await _until_running(any_clickhouse, mark, 1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await _until_running(any_clickhouse, mark, 0)


async def _until_running(ch: ClickHouse, mark: str, wanted: int) -> None:
    async with asyncio.timeout(10):
        while True:
            running = await ch.query(
                "SELECT count() FROM system.processes WHERE Settings['log_comment'] = {mark:String}", {"mark": mark}
            )
            if running.scalar() == wanted:
                return


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT throwIf(number = 500000), number FROM numbers(1000000) SETTINGS max_block_size = 1000, max_threads = 1",
        "SELECT number FROM numbers(1000000) SETTINGS max_block_size = 1000, max_result_rows = 10000",
    ],
)
async def test_what_a_failed_statement_had_made_is_not_in_the_next_results(
    any_clickhouse: ClickHouse, statement: str
) -> None:
    for _ in range(4):
        with pytest.raises(InternalError):
            await any_clickhouse.query(statement)
    for number in range(8):
        assert (await any_clickhouse.query("SELECT {number:UInt8}", {"number": number})).rows == [(number,)]


async def test_what_a_cancelled_statement_had_made_is_not_in_the_next_results(any_clickhouse: ClickHouse) -> None:
    for _ in range(4):
        with pytest.raises(DeadlineExceeded):
            await any_clickhouse.query(
                "SELECT sleepEachRow(0.02) FROM numbers(1000) SETTINGS max_block_size = 1", timeout_s=0.2
            )
    for number in range(8):
        assert (await any_clickhouse.query("SELECT {number:UInt8}", {"number": number})).rows == [(number,)]


async def test_a_stream_yields_every_row_in_blocks(any_clickhouse: ClickHouse) -> None:
    total, blocks = 0, 0
    async for block in any_clickhouse.stream("SELECT number FROM numbers({n:UInt64})", {"n": 300_000}):
        total += sum(row[0] for row in block)
        blocks += 1
    assert total == sum(range(300_000))
    assert blocks > 1


async def test_a_stream_that_is_left_early_gives_its_place_back(any_clickhouse: ClickHouse) -> None:
    for _ in range(5):  # more than there are places
        async with aclosing(any_clickhouse.stream("SELECT number FROM numbers(3000000)")) as blocks:
            async for block in blocks:
                assert block[0] == (0,)
                break
    assert (await any_clickhouse.query("SELECT 1")).rows == [(1,)]


async def test_a_setting_of_one_statement_is_not_kept_for_the_next(any_clickhouse: ClickHouse) -> None:
    value = "SELECT getSetting('max_block_size')"
    before = (await any_clickhouse.query(value)).scalar()
    for _ in range(6):
        assert (await any_clickhouse.query(value, settings={"max_block_size": 777})).scalar() == 777
        await any_clickhouse.command(
            "CREATE TABLE IF NOT EXISTS x (a Int8) ENGINE = Memory", settings={"max_block_size": 9}
        )
        assert (await any_clickhouse.query(value)).scalar() == before


async def test_more_callers_than_places_are_all_served(any_clickhouse: ClickHouse) -> None:
    results = await asyncio.gather(
        *(any_clickhouse.query("SELECT {number:UInt32}", {"number": number}) for number in range(100))
    )
    assert [rows.scalar() for rows in results] == list(range(100))


async def test_a_command_may_bind_values(items: ClickHouse) -> None:
    await items.insert(ITEMS, [("a", "", [], NOON, 1), ("b", "", [], NOON + timedelta(hours=1), 2)])
    await items.command(
        "ALTER TABLE items DELETE WHERE at > {at:DateTime64(3, 'UTC')} SETTINGS mutations_sync = 1", {"at": NOON}
    )
    assert (await items.query("SELECT key FROM items")).rows == [("a",)]


async def test_an_empty_result_still_has_its_columns_or_none_at_all(items: ClickHouse) -> None:
    result = await items.query("SELECT key, number FROM items")
    assert result.rows == []
    assert result.first() is None


async def test_ping_answers_and_a_single_engine_needs_no_setting_to_read_its_writes(any_clickhouse: ClickHouse) -> None:
    await any_clickhouse.ping()
    assert own_write_reads(any_clickhouse) == {}
