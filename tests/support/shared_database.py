"""One migrated database for all tests of a module, emptied before each."""

from collections.abc import Iterable, Iterator

from loom_common.clickhouse import ClickHouse
from loom_common.clickhouse.engine import EmbeddedEngine
from loom_common.migrations import migrate


def shared_database(engine: EmbeddedEngine, name: str) -> Iterator[str]:
    """Yields a database's name and drops it afterwards; for a fixture `clickhouse_database` of a module's scope."""
    yield name
    handle = engine.open_handle()
    handle.execute(f"DROP DATABASE IF EXISTS `{name}` SYNC")
    handle.close()


async def emptied(ch: ClickHouse, service: str, package: str, tables: Iterable[str]) -> ClickHouse:
    """Returns the database with a service's tables, those that are named without rows."""
    await migrate(ch, service, package)
    for table in tables:
        await ch.command(f"TRUNCATE TABLE {table}")
    return ch
