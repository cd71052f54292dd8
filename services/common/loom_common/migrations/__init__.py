"""Migrations of a service's tables, and the shared tables' own."""

from loom_common.migrations.render import Migration, MigrationInvalid, find_migrations, render, split_statements
from loom_common.migrations.runner import MigrationChanged, migrate

__all__ = [
    "Migration",
    "MigrationChanged",
    "MigrationInvalid",
    "find_migrations",
    "migrate",
    "render",
    "split_statements",
]
