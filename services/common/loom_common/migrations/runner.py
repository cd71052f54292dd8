"""Brings the tables of one service to what this build expects, once, whichever process comes first."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias

from loom_common.clickhouse import ClickHouse, StorageStartError, Table, own_write_reads, tagged
from loom_common.leases import Leases
from loom_common.local_locks import KeyedLocks
from loom_common.migrations.render import Migration, find_migrations

logger = logging.getLogger(__name__)

COMMON: Final = "common"
_LEASE_S: Final = 30.0
# Source: chosen; above the time of any migration that is safe beside the previous build.
_WAIT_S: Final = 300.0
_STATEMENT_S: Final = 600.0

SCHEMA_MIGRATIONS: Final = Table.of(
    "schema_migrations",
    quorum=True,
    service="LowCardinality(String)",
    version="UInt32",
    name="String",
    checksum="String",
    applied_at="DateTime64(3, 'UTC')",
)

Check: TypeAlias = Callable[[], Awaitable[None]]

_here: Final = KeyedLocks()

_APPLIED = """
SELECT version, checksum
FROM schema_migrations FINAL
WHERE service = {service:String}
ORDER BY version
"""

_HAS_TABLE = """
SELECT name
FROM system.tables
WHERE database = currentDatabase() AND name = 'schema_migrations'
ORDER BY name
LIMIT 1
"""


class MigrationChanged(StorageStartError):
    """A migration that was applied reads differently in this build, so nobody knows what the tables are."""

    def __init__(self, service: str, migration: Migration) -> None:
        super().__init__(
            f"migration {migration.version:04d}_{migration.name} of {service} was changed after it was applied; "
            "restore it and add a new one"
        )
        self.service = service
        self.version = migration.version


async def migrate(ch: ClickHouse, service: str, package: str) -> list[int]:
    """Applies what is missing of `<package>/migrations`, one process at a time, and returns the numbers it applied.

    The tables that every service shares are made first. Numbers that a newer build applied are left alone: each
    migration is safe beside the build before it.

    Raises:
        MigrationChanged: An applied migration has another checksum now. Nothing was applied.
        MigrationInvalid: A file breaks a rule.
        LoomError: The store failed; start again.
    """
    migrations = find_migrations(package)
    with tagged(f"migrate.{service}"):
        await _make_common_tables(ch)
        if not await _missing(ch, service, migrations):
            return []
        async with _alone(ch, service) as check:
            return await _apply(ch, service, await _missing(ch, service, migrations), check)


@dataclass(frozen=True, slots=True)
class MigrationState:
    """What a database has of one service's migrations. Numbers, ascending."""

    pending: tuple[int, ...]
    """Those of this build that were not applied."""
    foreign: tuple[int, ...]
    """Those that were applied and that this build does not have: a newer one was here."""


async def migration_state(ch: ClickHouse, service: str, package: str) -> MigrationState:
    """Returns how the tables of a service stand to this build, and changes nothing.

    Raises:
        MigrationChanged: An applied migration has another checksum now.
        LoomError: The store cannot be read.
    """
    migrations = find_migrations(package)
    with tagged(f"migrations.{service}"):
        if not (await ch.query(_HAS_TABLE, {})).rows:
            return MigrationState(tuple(migration.version for migration in migrations), ())
        pending = await _missing(ch, service, migrations)
        rows = await ch.query(_APPLIED, {"service": service}, settings=own_write_reads(ch))
    known = {migration.version for migration in migrations}
    return MigrationState(
        tuple(migration.version for migration in pending),
        tuple(version for version, _ in rows.rows if version not in known),
    )


async def _make_common_tables(ch: ClickHouse) -> None:
    # Without a lease, because leases live in these tables; several processes may run it side by side.
    migrations = find_migrations("loom_common")
    for statement in migrations[0].statements(ch.cluster):
        await ch.command(statement, timeout_s=_STATEMENT_S)
    missing = await _missing(ch, COMMON, migrations)
    if missing and missing[0].version == 1:
        await _record(ch, COMMON, missing.pop(0))
    if missing:
        async with _alone(ch, COMMON) as check:
            await _apply(ch, COMMON, await _missing(ch, COMMON, migrations), check)


@asynccontextmanager
async def _alone(ch: ClickHouse, service: str) -> AsyncIterator[Check]:
    """Keeps everyone else from migrating a service, and yields what raises once that can no longer be relied on.

    Others are other processes, and a lease keeps them out; where there can be none, a lock of this process does, which
    spares a first start a dozen statements.
    """
    if ch.exclusive:
        async with _here.one(service):
            yield _nothing
        return
    async with Leases(ch, COMMON).held(f"migrate.{service}", _LEASE_S, wait_s=_WAIT_S) as lease:
        yield lease.check


async def _nothing() -> None:
    pass


async def _missing(ch: ClickHouse, service: str, migrations: list[Migration]) -> list[Migration]:
    rows = await ch.query(_APPLIED, {"service": service}, settings=own_write_reads(ch))
    applied: dict[int, str] = dict(rows.rows)
    for migration in migrations:
        if applied.get(migration.version, migration.checksum) != migration.checksum:
            raise MigrationChanged(service, migration)
    return [migration for migration in migrations if migration.version not in applied]


async def _apply(ch: ClickHouse, service: str, migrations: list[Migration], check: Check) -> list[int]:
    for migration in migrations:
        for statement in migration.statements(ch.cluster):
            await check()
            await ch.command(statement, timeout_s=_STATEMENT_S)
        await _record(ch, service, migration)
        logger.info("migrated", extra={"service": service, "version": migration.version, "migration": migration.name})
    return [migration.version for migration in migrations]


async def _record(ch: ClickHouse, service: str, migration: Migration) -> None:
    row = (service, migration.version, migration.name, migration.checksum, datetime.now(UTC))
    await ch.insert(SCHEMA_MIGRATIONS, [row])
