"""Migrations against the real engine."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loom_common.clickhouse import ClickHouse
from loom_common.migrations import MigrationChanged, migrate

FIRST = (
    "CREATE TABLE IF NOT EXISTS things {on_cluster} (k String, version UInt64) ENGINE = {replacing:version} ORDER BY k;"
)
SECOND = """
-- two statements; one semicolon in a comment
ALTER TABLE things ADD COLUMN IF NOT EXISTS note String DEFAULT ';';
CREATE TABLE IF NOT EXISTS log (k String) ENGINE = {mergetree} ORDER BY k;
"""


class Package:
    """An importable package with migrations of its own."""

    def __init__(self, root: Path, name: str) -> None:
        self.name = name
        self.folder = root / name / "migrations"
        self.folder.mkdir(parents=True)
        (root / name / "__init__.py").touch()

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Package]:
    monkeypatch.syspath_prepend(tmp_path)
    name = f"migrated_{tmp_path.name.replace('-', '_')}"
    yield Package(tmp_path, name)
    sys.modules.pop(name, None)


async def _tables(ch: ClickHouse) -> set[str]:
    rows = await ch.query("SELECT name FROM system.tables WHERE database = {db:String}", {"db": ch.database})
    return {name for (name,) in rows}


async def test_missing_migrations_are_applied_once_and_in_order(any_clickhouse: ClickHouse, package: Package) -> None:
    package.write("0001_things.sql", FIRST)
    assert await migrate(any_clickhouse, "svc", package.name) == [1]
    package.write("0002_more.sql", SECOND)
    assert await migrate(any_clickhouse, "svc", package.name) == [2]
    assert await migrate(any_clickhouse, "svc", package.name) == []
    assert {"things", "log", "claims", "leases", "idempotency_keys"} <= await _tables(any_clickhouse)
    note = await any_clickhouse.query(
        "SELECT default_expression FROM system.columns WHERE table = 'things' AND name = 'note'"
        " AND database = {db:String}",
        {"db": any_clickhouse.database},
    )
    assert note.scalar() == "';'"


async def test_a_changed_migration_refuses_to_start_and_applies_nothing(
    clickhouse: ClickHouse, package: Package
) -> None:
    package.write("0001_things.sql", FIRST)
    await migrate(clickhouse, "svc", package.name)
    package.write("0001_things.sql", FIRST.replace("k String", "k UInt8"))
    package.write("0002_more.sql", SECOND)
    with pytest.raises(MigrationChanged) as caught:
        await migrate(clickhouse, "svc", package.name)
    assert caught.value.version == 1
    assert "log" not in await _tables(clickhouse)


async def test_processes_that_start_together_apply_each_migration_once(
    clickhouse: ClickHouse, package: Package
) -> None:
    package.write("0001_things.sql", FIRST)
    package.write("0002_more.sql", SECOND)
    applied = await asyncio.gather(*(migrate(clickhouse, "svc", package.name) for _ in range(3)))
    assert sorted(version for versions in applied for version in versions) == [1, 2]


async def test_services_have_numbers_of_their_own(clickhouse: ClickHouse, package: Package) -> None:
    package.write("0001_things.sql", FIRST)
    assert await migrate(clickhouse, "one", package.name) == [1]
    assert await migrate(clickhouse, "two", package.name) == [1]
