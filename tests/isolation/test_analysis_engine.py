"""What the boundary around analyses says of the engine is true of the engine that is here: nothing is unlooked at."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio
from support import analysis
from support.analysis import Analysts, open_analysts
from support.clickhouse import EndpointThread

from loom_common.analysis import allowlist
from loom_common.clickhouse.analyst_access import SYSTEM_TABLES_READABLE, system_tables
from loom_common.clickhouse.endpoint_analyst import EndpointAnalyst
from loom_common.clickhouse.engine import EmbeddedEngine
from loom_common.clickhouse.http import ServerAddress
from loom_insights.domain.analysis import AnalysisLimits
from loom_insights.domain.functions import allowed_functions, is_allowed, refused_functions
from loom_insights.store.census import CENSUS as INSIGHTS_CENSUS
from loom_insights.store.embedded_boundary import statement_settings
from loom_memory.store.census import CENSUS as MEMORY_CENSUS

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Columns that people fill with words, or that hold what was asked.
TEXTS: Final = (
    "value", "text", "tags", "labels", "note", "title", "heading", "breadcrumb", "args", "query", "prompt", "question",
    "answer", "source", "derived_from", "embedding", "term_ids", "payload", "content", "body", "digest", "version",
)  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def analysts(clickhouse_engine: EmbeddedEngine) -> AsyncIterator[Analysts]:
    async with open_analysts(clickhouse_engine) as analysts:
        yield analysts
    analysis.drop(clickhouse_engine)


async def test_every_function_of_the_engine_is_either_allowed_or_refused(analysts: Analysts) -> None:
    found = {str(name) for (name,) in await analysts.ch.query("SELECT name FROM system.functions")}
    allowed, refused = allowed_functions(), refused_functions()
    assert not allowed & refused
    assert found - allowed - refused == set(), "look at these and put each on a list in loom_insights/domain"
    assert (allowed | refused) - found == set(), "the engine has no such functions any more"


async def test_no_refused_function_passes_in_another_case_or_with_a_suffix(analysts: Analysts) -> None:
    folded = {name.lower() for name in allowed_functions()}
    for name in refused_functions():
        spellings = {name, name.upper(), name.lower(), f"{name}If", f"{name}OrNull", f"{name}State", f"{name}Merge"}
        passing = {spelling for spelling in spellings if is_allowed(spelling)}
        # Two names of one function that differ in case alone would be both or neither.
        assert not passing, f"{name} passes as {passing}; folded: {name.lower() in folded}"


async def test_no_aggregate_is_allowed_as_a_state(analysts: Analysts) -> None:
    rows = await analysts.ch.query("SELECT name FROM system.functions WHERE is_aggregate")
    assert not [name for (name,) in rows if is_allowed(f"{name}State") or is_allowed(f"{name}MergeState")]


async def test_an_alias_is_on_the_list_of_what_it_stands_for(analysts: Analysts) -> None:
    rows = await analysts.ch.query("SELECT name, alias_to FROM system.functions WHERE alias_to != ''")
    assert not [name for name, target in rows if is_allowed(name) and not is_allowed(target)]


async def test_every_system_table_of_the_engine_is_hidden_from_the_analyst(analysts: Analysts) -> None:
    rows = await analysts.ch.query("SELECT name FROM system.tables WHERE database = 'system'")
    assert {str(name) for (name,) in rows} - set(system_tables()) - SYSTEM_TABLES_READABLE == set()
    for (name,) in rows:
        if name in SYSTEM_TABLES_READABLE:
            continue
        shown = await analysts.unguarded(f"SELECT count() FROM system.`{name}`")
        assert shown.startswith("refused") or shown.rstrip().endswith("[0]"), f"system.{name}: {shown[:200]}"


async def test_the_allowlist_names_columns_that_exist_with_the_types_that_they_have(analysts: Analysts) -> None:
    for table in allowlist().values():
        rows = await analysts.ch.query(
            "SELECT name, type FROM system.columns WHERE database = currentDatabase() AND table = {table:String}",
            {"table": table.name},
        )
        types = {str(name): str(type_) for name, type_ in rows}
        assert {column.name: column.type for column in table.columns}.items() <= types.items(), table.name


async def test_the_allowlist_holds_no_column_that_people_write_texts_into() -> None:
    for table in allowlist().values():
        assert not set(table.column_names) & set(TEXTS), table.name
        assert all(column.comment.endswith(".") for column in table.columns), table.name
        assert table.erased.endswith(".")


async def test_an_erasure_reaches_every_table_of_the_allowlist() -> None:
    held = {line.table: line for line in (*MEMORY_CENSUS, *INSIGHTS_CENSUS)}
    for name in allowlist():
        line = held[name]
        assert line.of_user or line.of_memories or line.no_memory_content, name


async def test_every_column_of_the_allowlist_can_be_read_by_a_statement(analysts: Analysts) -> None:
    for table in allowlist().values():
        outcome = await analysts.ask(f"SELECT {', '.join(table.column_names)} FROM {table.name}")
        assert outcome.reason == "ok", f"{table.name}: {outcome.shown()}"


async def test_a_statement_whose_asker_leaves_is_ended_in_the_process_of_the_engine(
    analysts: Analysts, clickhouse_endpoint: EndpointThread
) -> None:
    address = ServerAddress.parse(clickhouse_endpoint.url(analysis.DATABASE), analysis.DATABASE)
    remote = await EndpointAnalyst.find(address, connections=2)
    assert remote is not None
    remote.configure(statement_settings(AnalysisLimits(time_s=300.0, read_rows=0)))
    endless = "SELECT count() FROM numbers(1000000000000) WHERE number % 7 = 3"
    try:
        asked = asyncio.create_task(remote.run(endless, "TSV", "acme", ("main",), timeout_s=300.0))
        await _until_running(analysts, 1)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await _until_running(analysts, 0)
    finally:
        await remote.close()


async def _until_running(analysts: Analysts, wanted: int) -> None:
    begin = "SELECT count() FROM numbers(1000000000000)"
    running = "SELECT count() FROM system.processes WHERE startsWith(query, {begin:String})"
    async with asyncio.timeout(10):
        while (await analysts.ch.query(running, {"begin": begin})).scalar() != wanted:
            pass
