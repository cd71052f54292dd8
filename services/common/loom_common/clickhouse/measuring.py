"""How long statements take and how many rows are stored, for whichever engine runs them."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from loom_common import telemetry
from loom_common.clickhouse.protocol import Table
from loom_common.errors import LoomError, Reason


@contextmanager
def measured(kind: Literal["query", "command", "insert"]) -> Iterator[None]:
    """Records the time and the outcome of the statement that the block runs."""
    begun_s, outcome = time.monotonic(), "ok"
    try:
        yield
    except LoomError as error:
        outcome = error.reason.value
        raise
    except asyncio.CancelledError:
        outcome = Reason.CANCELLED.value
        raise
    finally:
        telemetry.observe("loom.clickhouse.statement.duration", time.monotonic() - begun_s, kind=kind, outcome=outcome)


@contextmanager
def measured_insert(table: Table, rows: int) -> Iterator[None]:
    """Records as `measured` does, and counts the rows where they were stored."""
    with measured("insert"):
        yield
    telemetry.add("loom.clickhouse.insert.rows", rows, table=table.name)
