"""Migrations of a service's tables, and the shared tables' own."""

from loom_common.migrations.render import Migration, MigrationInvalid, find_migrations, render, split_statements
from loom_common.migrations.runner import MigrationChanged, MigrationState, migrate, migration_state

__all__ = [
    "Migration",
    "MigrationChanged",
    "MigrationInvalid",
    "MigrationState",
    "find_migrations",
    "migrate",
    "migration_state",
    "render",
    "split_statements",
]
