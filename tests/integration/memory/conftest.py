from collections.abc import AsyncIterator, Iterator
from typing import Final

import pytest
import pytest_asyncio
from support.bulk import BulkHarness, bulk_over
from support.memory import MemoryHarness, memory_over
from support.recycled_database import RecycledDatabases

from loom_common.clickhouse import ClickHouse, ClickHouseSettings
from loom_common.clickhouse.embedded import EmbeddedClickHouse
from loom_common.clickhouse.engine import EmbeddedEngine

_DATABASES: Final = RecycledDatabases("memory")


@pytest.fixture
def clickhouse_database(clickhouse_engine: EmbeddedEngine) -> Iterator[str]:
    """Name of a database without rows that is this test's alone."""
    yield from _DATABASES.one(clickhouse_engine)


@pytest.fixture
async def memory(clickhouse: ClickHouse) -> AsyncIterator[MemoryHarness]:
    """Memory over the embedded engine."""
    harness = await memory_over(clickhouse)
    yield harness
    await harness.parts.deletions.close()
    await harness.parts.workers.close()


@pytest.fixture
async def any_memory(any_clickhouse: ClickHouse) -> AsyncIterator[MemoryHarness]:
    """Memory over the embedded engine, and over HTTP."""
    harness = await memory_over(any_clickhouse)
    yield harness
    await harness.parts.deletions.close()
    await harness.parts.workers.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_bulk(clickhouse_engine: EmbeddedEngine) -> AsyncIterator[BulkHarness]:
    """What moves and removes memories, over one database for a module's tests; each takes namespaces of its own."""
    ch = EmbeddedClickHouse(clickhouse_engine, "shared_bulk", ClickHouseSettings(pool_size=2))
    await ch.start()
    yield await bulk_over(ch)
    await ch.command("DROP DATABASE shared_bulk SYNC")
    await ch.close()
