"""The tables `worker_passes` and `worker_cursors`: what background workers did, and how far they have read.

They hold no content of memories: names of workers and namespaces, times and numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, Table, own_write_reads

PASSES: Final = Table.of(
    "worker_passes",
    worker="LowCardinality(String)",
    holder="String",
    started_at="DateTime64(3, 'UTC')",
    finished_at="Nullable(DateTime64(3, 'UTC'))",
    outcome="LowCardinality(String)",
    counted="Array(String)",
    counts="Array(UInt32)",
    version="UInt64",
)
CURSORS: Final = Table.of(
    "worker_cursors",
    worker="LowCardinality(String)",
    org="LowCardinality(String)",
    namespace="LowCardinality(String)",
    place="UInt64",
    version="UInt64",
)

_LAST: Final = """SELECT worker, holder, started_at, finished_at, outcome, counted, counts FROM worker_passes FINAL
ORDER BY worker"""
_CURSORS: Final = """SELECT org, namespace, place FROM worker_cursors FINAL
WHERE worker = {worker:String} ORDER BY org, namespace"""


@dataclass(frozen=True, slots=True)
class LastPass:
    """One pass of a worker; the end and the outcome are unset while it runs."""

    worker: str
    holder: str
    started_at: datetime
    finished_at: datetime | None = None
    outcome: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)


class WorkerPassRepository:
    """Owns the tables `worker_passes` and `worker_cursors`; no other class writes them."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = own_write_reads(ch)

    async def put(self, last: LastPass, version: int) -> None:
        """Stores what a worker's last pass is."""
        row = (
            last.worker,
            last.holder,
            last.started_at,
            last.finished_at,
            last.outcome,
            list(last.counts),
            list(last.counts.values()),
            version,
        )
        await self._ch.insert(PASSES, [row])

    async def last(self) -> dict[str, LastPass]:
        """Returns the last pass of every worker that ever had one."""
        rows = await self._ch.query(_LAST, settings=self._reads)
        return {
            row[0]: LastPass(row[0], row[1], row[2], row[3], row[4], dict(zip(row[5], row[6], strict=True)))
            for row in rows
        }

    async def cursors(self, worker: str) -> dict[Scope, int]:
        """Returns how far a worker has read each namespace."""
        rows = await self._ch.query(_CURSORS, {"worker": worker}, settings=self._reads)
        return {Scope(row[0], row[1]): row[2] for row in rows}

    async def move(self, worker: str, scope: Scope, place: int, version: int) -> None:
        """Stores how far a worker has read a namespace."""
        await self._ch.insert(CURSORS, [(worker, scope.org, scope.namespace, place, version)])
