"""A start on what the engine inside this process cannot use."""

import pytest

from loom_common.clickhouse import ClickHouseSettings, StorageStartError
from loom_common.clickhouse.embedded import EmbeddedClickHouse
from loom_common.clickhouse.engine import EmbeddedEngine


async def test_a_database_that_the_engine_cannot_make_is_told_to_the_operator(
    clickhouse_engine: EmbeddedEngine, clickhouse_settings: ClickHouseSettings
) -> None:
    ch = EmbeddedClickHouse(clickhouse_engine, "x" * 300, clickhouse_settings)
    try:
        with pytest.raises(StorageStartError):
            await ch.start()
    finally:
        await ch.close()
