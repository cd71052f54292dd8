"""The table `memory`: the current row of every memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, Column, Row, Table, own_write_reads
from loom_memory.domain.analyzer import AnalyzedQuery, AnalyzedText
from loom_memory.domain.memory import Filter, Identity, Memory, Sketch
from loom_memory.store import memory_sql
from loom_memory.store.columns import COLUMNS, memory_from_row, row_from_memory
from loom_memory.store.filters import in_scope, shown

POINT_READ: Final = {"max_threads": 1}
"""Settings of a read of few keys: sharing it between threads costs a fifth more than it saves (measured 2026-11-30)."""

TABLE: Final = Table("memory", (*COLUMNS, Column("term_ids", "Array(UInt32)"), Column("dl", "UInt16")))

LAST_VERSION: Final = 2**64 - 1
"""Above every version."""

LEAST_ROWS: Final = 20
"""Rows that the weights of terms assume at least.

Source: chosen. In a namespace of one row its own words would weigh a fifth of a word that it does not hold, so that
two words of three would be no match; from here on they weigh nearly the same.
"""

MAX_SPEAKERS: Final = 256
MAX_NEIGHBOURS: Final = 1_000

LONGEST_SESSION: Final = 50_000
"""Rows up to which a session is read for neighbours.

Source: measured, 2026-11-30, two cores, a namespace of 1.3M rows: .3 s for a session of 100k, 1.4 s for one of 1M.
"""


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a search must know of the rows it may read.

    Attributes:
        rows: Live rows.
        mean_dl: Their mean length in terms; at least 1.
        speakers: Their distinct speakers, at most `MAX_SPEAKERS`, sorted.
    """

    rows: int
    mean_dl: float
    speakers: tuple[str, ...]


class LexicalHit(NamedTuple):
    """One row of the lexical leg, with the numbers of `domain.scoring`."""

    identity: Identity
    version: int
    bm25: float
    share: float
    exact: bool


@dataclass(frozen=True, slots=True)
class ListPlace:
    """Where a list goes on.

    Attributes:
        after: Version at which the last row that was shown has its place.
        identity: That row.
        settled: Every write up to this version was stored when the list began.
        upto: Newest version when the list began; what is newer is not listed.
    """

    after: int
    identity: Identity
    settled: int
    upto: int


@dataclass(frozen=True, slots=True)
class ListedIdentity:
    """One row of a list: its place, and the newest version that the whole list held."""

    identity: Identity
    place: int
    newest: int


class Neighbour(NamedTuple):
    """A row near a seed in its session; `position` counts the session's rows in order of time, from 1."""

    identity: Identity
    version: int
    position: int


class MemoryRepository:
    """Owns the table `memory`; no other class names it."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = own_write_reads(ch)

    async def insert(self, rows: Sequence[tuple[Memory, AnalyzedText]]) -> None:
        """Stores rows; each is visible to every read that begins later."""
        await self._ch.insert(TABLE, [(*row_from_memory(memory), text.term_ids, text.dl) for memory, text in rows])

    async def current(self, scope: Scope, identities: Sequence[Identity]) -> dict[Identity, Memory]:
        """Returns the newest rows of `identities`, deleted and expired ones included; who never was is left out."""
        if not identities:
            return {}
        parameters = {**in_scope(scope), "identities": list(identities)}
        return _by_identity(await self._rows_by_key(memory_sql.CURRENT, parameters))

    async def fetch(
        self, scope: Scope, wanted: Filter, identities: Sequence[Identity], now: datetime
    ) -> dict[Identity, Memory]:
        """Returns those of `identities` that are shown at `now` and pass the filter."""
        if not identities:
            return {}
        where = shown(scope, wanted, now)
        parameters = {**where.parameters, "identities": list(identities)}
        return _by_identity(await self._rows_by_key(memory_sql.fetch(where.sql), parameters))

    async def sketches(
        self, scope: Scope, wanted: Filter, identities: Sequence[Identity], now: datetime
    ) -> dict[Identity, Sketch]:
        """Returns what ranking needs of those of `identities` that are shown at `now` and pass the filter."""
        if not identities:
            return {}
        where = shown(scope, wanted, now)
        parameters = {**where.parameters, "identities": list(identities)}
        found = await self._rows_by_key(memory_sql.sketches(where.sql), parameters)
        return {(identity := Identity(*row[:3])): Sketch(identity, *row[3:]) for row in found}

    async def statistics(self, scope: Scope, wanted: Filter, now: datetime) -> Statistics:
        """Counts what a filtered search may read."""
        where = shown(scope, wanted, now)
        rows, mean_dl, speakers = (await self._rows(memory_sql.statistics(where.sql), where.parameters))[0]
        return Statistics(rows, max(mean_dl, 1.0) if rows else 1.0, tuple(sorted(speakers)))

    async def lexical(
        self, scope: Scope, wanted: Filter, now: datetime, query: AnalyzedQuery, statistics: Statistics, limit: int
    ) -> list[LexicalHit]:
        """Returns the best lexical matches: whole identifiers first, then by BM25, then by identity."""
        where = shown(scope, wanted, now)
        parameters = {
            **where.parameters,
            "q": query.term_ids,
            "w": query.weights,
            "x": query.identifiers,
            "n": float(max(statistics.rows, LEAST_ROWS)),
            "adl": statistics.mean_dl,
            "limit": limit,
        }
        found = await self._rows(memory_sql.lexical(where.sql), parameters)
        return [LexicalHit(Identity(*row[:3]), row[3], row[4], row[5], bool(row[6])) for row in found]

    async def page(
        self, scope: Scope, wanted: Filter, now: datetime, place: ListPlace, limit: int
    ) -> list[ListedIdentity]:
        """Returns the identities behind `place`, newest first, then by identity."""
        where = shown(scope, wanted, now)
        parameters = {
            **where.parameters,
            "settled": place.settled,
            "upto": place.upto,
            "after": place.after,
            "after_identity": place.identity,
            "limit": limit,
        }
        found = await self._rows(memory_sql.page(where.sql), parameters)
        return [ListedIdentity(Identity(*row[:3]), row[3], row[4]) for row in found]

    async def neighbours(
        self, scope: Scope, wanted: Filter, now: datetime, seeds: Sequence[Identity], statistics: Statistics
    ) -> list[Neighbour]:
        """Returns the rows around each seed in its session, the seeds included, in order of session and position.

        A session of more than `LONGEST_SESSION` rows has none.
        """
        sessions = sorted({(seed.user_id, seed.session_id) for seed in seeds if seed.session_id})
        if not sessions:
            return []
        where = shown(scope, wanted, now)
        parameters = {
            **where.parameters,
            "identities": list(seeds),
            "around": sessions,
            "limit": MAX_NEIGHBOURS,
        }
        # No session is longer than the whole; twice, because rows came since these were counted.
        may_be_long = statistics.rows > LONGEST_SESSION // 2
        if may_be_long:
            parameters["longest"] = LONGEST_SESSION
        sql = memory_sql.neighbours(where.sql, may_be_long=may_be_long)
        return [Neighbour(Identity(*row[:3]), row[3], row[4]) for row in await self._rows_by_key(sql, parameters)]

    async def _rows(self, sql: str, parameters: Mapping[str, object]) -> list[Row]:
        return (await self._ch.query(sql, parameters, settings=self._reads)).rows

    async def _rows_by_key(self, sql: str, parameters: Mapping[str, object]) -> list[Row]:
        return (await self._ch.query(sql, parameters, settings={**POINT_READ, **self._reads})).rows


def _by_identity(rows: Sequence[Row]) -> dict[Identity, Memory]:
    memories = [memory_from_row(row) for row in rows]
    return {memory.identity: memory for memory in memories}
