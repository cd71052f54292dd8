"""The table `memory_signals`: what happened to memories without a new version of them."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, Table, own_write_reads
from loom_memory.domain.memory import Identity
from loom_memory.store.columns import IDENTITIES, IDENTITY
from loom_memory.store.filters import IN_SCOPE, in_scope
from loom_memory.store.memories import POINT_READ

TABLE: Final = Table.of(
    "memory_signals",
    org="LowCardinality(String)",
    namespace="LowCardinality(String)",
    memory_key="String",
    user_id="String",
    session_id="String",
    signal="LowCardinality(String)",
    actor="String",
    source="String",
    request_id="String",
    cosine="Float32",
    recorded_at="DateTime64(3, 'UTC')",
)


class Signal(StrEnum):
    """What happened."""

    REPEATED = "repeated"
    """The same was written again."""
    USEFUL = "useful"
    NOT_USEFUL = "not_useful"
    WRONG = "wrong"


# A caller's last word counts, and of a key only what was said in its present life.
_COUNTS: Final = f"""SELECT {IDENTITY}, sum(repeated), countIf(word = 'useful'), countIf(word = 'not_useful'),
    countIf(word = 'wrong'), max(last_at)
FROM (
    SELECT {IDENTITY}, actor, countIf(signal = 'repeated') AS repeated,
        argMaxIf(signal, (recorded_at, request_id), signal != 'repeated') AS word, max(recorded_at) AS last_at
    FROM memory_signals WHERE {IN_SCOPE} AND ({IDENTITY}) IN {{identities:{IDENTITIES}}}
        AND recorded_at >= {{since:DateTime64(3, 'UTC')}}
    GROUP BY {IDENTITY}, actor
)
GROUP BY {IDENTITY} ORDER BY {IDENTITY} LIMIT {{limit:UInt32}}"""


@dataclass(frozen=True, slots=True)
class SignalRow:
    """One thing that happened to a memory."""

    scope: Scope
    identity: Identity
    signal: Signal
    actor: str
    recorded_at: datetime
    source: str = ""
    request_id: str = ""
    cosine: float = 0.0


@dataclass(frozen=True, slots=True)
class Signals:
    """What happened to a memory, counted.

    Attributes:
        repeated: How often the same was written again.
        useful: Callers whose last word was that.
        not_useful: The same.
        wrong: The same.
        last_at: When any of it last happened; None when nothing did.
    """

    repeated: int = 0
    useful: int = 0
    not_useful: int = 0
    wrong: int = 0
    last_at: datetime | None = None


NO_SIGNALS: Final = Signals()


class SignalRepository:
    """Owns the table `memory_signals`; no other class names it."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = {**POINT_READ, **own_write_reads(ch)}

    async def insert(self, rows: Sequence[SignalRow]) -> None:
        """Stores what happened."""
        if rows:
            await self._ch.insert(TABLE, [_row(row) for row in rows])

    async def counts(self, scope: Scope, identities: Sequence[Identity], since: datetime) -> dict[Identity, Signals]:
        """Returns what happened to memories at or after a time; one to which nothing did is left out."""
        if not identities:
            return {}
        parameters = {**in_scope(scope), "identities": list(identities), "since": since, "limit": len(identities)}
        rows = await self._ch.query(_COUNTS, parameters, settings=self._reads)
        return {Identity(*row[:3]): Signals(*row[3:]) for row in rows}


def _row(row: SignalRow) -> tuple[object, ...]:
    return (
        row.scope.org,
        row.scope.namespace,
        *row.identity,
        row.signal.value,
        row.actor,
        row.source,
        row.request_id,
        row.cosine,
        row.recorded_at,
    )
