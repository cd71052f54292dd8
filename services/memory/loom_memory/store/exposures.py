"""The table `memory_exposures`: which version of a memory was shown to whom."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, Table, own_write_reads
from loom_memory.domain.memory import Identity
from loom_memory.store.columns import IDENTITY
from loom_memory.store.filters import IN_SCOPE, in_scope

TABLE: Final = Table.of(
    "memory_exposures",
    org="LowCardinality(String)",
    namespace="LowCardinality(String)",
    memory_key="String",
    user_id="String",
    session_id="String",
    revision="UInt32",
    version="UInt64",
    shown_at="DateTime64(3, 'UTC')",
    op="LowCardinality(String)",
    request_id="String",
    run_id="String",
    subject="String",
    consumer="LowCardinality(String)",
    shown_rank="UInt16",
    score="Float32",
)

MAX_ROWS: Final = 5_000
"""Most rows that one answer about a run holds."""

RECALLING: Final = ("memory.search", "memory.ask", "search.query")
"""Operations whose hits count as recalled: who reads a key or a list has not asked for what it holds."""

RECALLED_RANK: Final = 3
"""Place up to which a hit counts as recalled. Source: chosen; what stands further down is looked at less often."""

_OF_RUN: Final = f"""SELECT org, namespace, {IDENTITY}, revision, version, shown_at, op, request_id, run_id, subject,
    consumer, shown_rank, score
FROM memory_exposures
WHERE org = {{org:String}} AND ({{namespace:String}} = '' OR namespace = {{namespace:String}})
    AND run_id = {{run_id:String}} AND ({{subject:String}} = '' OR subject = {{subject:String}})
ORDER BY shown_at, request_id, shown_rank, {IDENTITY} LIMIT {{limit:UInt32}}"""

_RECALLS: Final = f"""SELECT {IDENTITY}, uniq(request_id) AS recalls FROM memory_exposures
WHERE {IN_SCOPE} AND shown_at >= {{since:DateTime64(3, 'UTC')}} AND has({{ops:Array(String)}}, op)
    AND shown_rank <= {{rank:UInt16}}
GROUP BY {IDENTITY} ORDER BY recalls DESC, {IDENTITY} LIMIT {{limit:UInt32}}"""


@dataclass(frozen=True, slots=True)
class Exposure:
    """One memory that was shown.

    Attributes:
        scope: Namespace that holds it.
        identity: Which memory; a hit on one of its chunks counts as it.
        revision: Version as callers see it, 1, 2, 3.
        version: Unique number of that version.
        op: What showed it: `memory.search`, `memory.ask`, `memory.get`, `memory.list`, `memory.inspect` or
            `search.query`.
        rank: Place among what was shown, from 1.
        score: Its score there; 0 where nothing is scored.
    """

    scope: Scope
    identity: Identity
    revision: int
    version: int
    shown_at: datetime
    op: str
    request_id: str
    run_id: str
    subject: str
    consumer: str
    rank: int
    score: float


class ExposureRepository:
    """Owns the table `memory_exposures`."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = own_write_reads(ch)

    async def insert(self, exposures: Sequence[Exposure]) -> None:
        """Stores exposures; each is visible to every read that begins later."""
        await self._ch.insert(TABLE, [_row(exposure) for exposure in exposures])

    async def of_run(self, org: str, namespace: str, run_id: str, subject: str, limit: int) -> list[Exposure]:
        """Returns what was shown under a run, oldest first; an empty namespace or subject keeps all."""
        parameters = {"org": org, "namespace": namespace, "run_id": run_id, "subject": subject, "limit": limit}
        rows = await self._ch.query(_OF_RUN, parameters, settings=self._reads)
        return [Exposure(Scope(row[0], row[1]), Identity(*row[2:5]), *row[5:]) for row in rows]

    async def recalls(self, scope: Scope, since: datetime, limit: int) -> dict[Identity, int]:
        """Returns how many requests recalled each memory since then; of many those that were recalled most."""
        parameters = {
            **in_scope(scope),
            "since": since,
            "ops": list(RECALLING),
            "rank": RECALLED_RANK,
            "limit": limit,
        }
        return {Identity(*row[:3]): row[3] for row in await self._ch.query(_RECALLS, parameters)}


def _row(exposure: Exposure) -> tuple[object, ...]:
    return (
        exposure.scope.org,
        exposure.scope.namespace,
        *exposure.identity,
        exposure.revision,
        exposure.version,
        exposure.shown_at,
        exposure.op,
        exposure.request_id,
        exposure.run_id,
        exposure.subject,
        exposure.consumer,
        exposure.rank,
        exposure.score,
    )
