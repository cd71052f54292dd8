from collections.abc import AsyncIterator

import pytest
from support.memory import MemoryHarness, memory_over

from loom_common.clickhouse import ClickHouse


@pytest.fixture
async def memory(clickhouse: ClickHouse) -> AsyncIterator[MemoryHarness]:
    """Memory over the embedded engine."""
    harness = await memory_over(clickhouse)
    yield harness
    await harness.parts.deletions.close()


@pytest.fixture
async def any_memory(any_clickhouse: ClickHouse) -> AsyncIterator[MemoryHarness]:
    """Memory over the embedded engine, and over HTTP."""
    harness = await memory_over(any_clickhouse)
    yield harness
    await harness.parts.deletions.close()
