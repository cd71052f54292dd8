"""The one door to ClickHouse, whichever engine is behind it."""

from loom_common.clickhouse.connect import embedded_directory, open_clickhouse, own_write_reads
from loom_common.clickhouse.directory import (
    DataDirectoryFull,
    DataDirectoryHeld,
    DataDirectoryUnusable,
    StorageStartError,
)
from loom_common.clickhouse.errors import StatementFailed
from loom_common.clickhouse.protocol import ClickHouse, Column, Parameters, Row, Rows, Settings, Table
from loom_common.clickhouse.settings import ClickHouseSettings
from loom_common.clickhouse.tagging import tagged

__all__ = [
    "ClickHouse",
    "ClickHouseSettings",
    "Column",
    "DataDirectoryFull",
    "DataDirectoryHeld",
    "DataDirectoryUnusable",
    "Parameters",
    "Row",
    "Rows",
    "Settings",
    "StatementFailed",
    "StorageStartError",
    "Table",
    "embedded_directory",
    "open_clickhouse",
    "own_write_reads",
    "tagged",
]
