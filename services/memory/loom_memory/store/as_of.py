"""Memories as they were at a moment, read from their versions.

What was deleted since is gone from every moment: a deletion removes a memory from every read. What has not been written
again since is read where it stands now; only what was is read here.
"""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, own_write_reads
from loom_memory.domain.analyzer import AnalyzedQuery
from loom_memory.domain.memory import Filter, Identity, Memory
from loom_memory.domain.narrowing import Span
from loom_memory.domain.ranking import WINDOW
from loom_memory.domain.scoring import K1, SHARE_K, B
from loom_memory.store.columns import IDENTITIES, IDENTITY, SELECTED, memory_from_row
from loom_memory.store.filters import IN_SCOPE, shown
from loom_memory.store.memories import LexicalHit, Neighbour

_MOMENT: Final = timedelta(milliseconds=1)
_MAX_NEIGHBOURS: Final = 1_000

# The newest version of each memory up to the moment, of the writes that ended and of the life that has not been ended
# by a deletion: not above the current version, not withdrawn, not at or under the last tombstone.
_AS_OF: Final = f"""SELECT {SELECTED} FROM (
    SELECT {SELECTED}, current, gone FROM memory_versions
    INNER JOIN (
        SELECT {IDENTITY}, version AS current FROM memory FINAL WHERE {IN_SCOPE} AND tombstoned_at IS NULL
    ) AS held USING ({IDENTITY})
    LEFT JOIN (
        SELECT {IDENTITY}, max(version) AS gone FROM memory_versions
        WHERE {IN_SCOPE} AND tombstoned_at IS NOT NULL GROUP BY {IDENTITY}
    ) AS ended USING ({IDENTITY})
    WHERE {IN_SCOPE} AND revision > 0 AND value != '' AND tombstoned_at IS NULL
        AND updated_at <= {{as_of:DateTime64(3, 'UTC')}}
        AND ({IDENTITY}, version) NOT IN (
            SELECT {IDENTITY}, version FROM memory_versions WHERE {IN_SCOPE} AND revision = 0)
)
WHERE version <= current AND version > gone
ORDER BY {IDENTITY}, revision DESC, version DESC LIMIT 1 BY {IDENTITY}"""

_NOT_CURRENT: Final = f"""({IDENTITY}, version) NOT IN (
    SELECT {IDENTITY}, version FROM memory FINAL WHERE {IN_SCOPE})"""


def unchanged(wanted: Filter, as_of: datetime) -> Filter:
    """Returns the filter that keeps what has not been written again since."""
    updated = wanted.more.updated
    until = as_of + _MOMENT if updated.until is None else min(updated.until, as_of + _MOMENT)
    return replace(wanted, more=replace(wanted.more, updated=Span(updated.since, until)))


class AsOfRepository:
    """Reads `memory_versions` and `memory` as they were at a moment."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = own_write_reads(ch)

    async def changed(self, scope: Scope, wanted: Filter, as_of: datetime, limit: int) -> list[Memory]:
        """Returns memories as they were that have been written again since, newest first."""
        where = shown(scope, wanted, as_of)
        rows = await self._ch.query(
            _changed(where.sql), {**where.parameters, "as_of": as_of, "limit": limit}, settings=self._reads
        )
        return [memory_from_row(row) for row in rows]

    async def neighbours(
        self, scope: Scope, wanted: Filter, as_of: datetime, seeds: Sequence[Identity]
    ) -> list[Neighbour]:
        """Returns the rows around each seed in its session as they were, in order of session and position."""
        sessions = sorted({(seed.user_id, seed.session_id) for seed in seeds if seed.session_id})
        if not sessions:
            return []
        where = shown(scope, wanted, as_of)
        parameters = {
            **where.parameters,
            "as_of": as_of,
            "identities": list(seeds),
            "around": sessions,
            "limit": _MAX_NEIGHBOURS,
        }
        rows = await self._ch.query(_neighbours(where.sql), parameters, settings=self._reads)
        return [Neighbour(Identity(*row[:3]), row[3], row[4]) for row in rows]

    async def frequencies(self, scope: Scope, wanted: Filter, as_of: datetime, query: AnalyzedQuery) -> list[int]:
        """Returns how many unchanged rows hold each term."""
        where = shown(scope, unchanged(wanted, as_of), as_of)
        rows = await self._ch.query(
            _frequencies(where.sql), {**where.parameters, "q": query.term_ids}, settings=self._reads
        )
        found = list(rows.scalar()) if len(rows) else []
        return [int(count) for count in found] or [0] * len(query.term_ids)

    async def lexical(
        self,
        scope: Scope,
        wanted: Filter,
        as_of: datetime,
        query: AnalyzedQuery,
        weights: Sequence[float],
        mean_dl: float,
        limit: int,
    ) -> list[LexicalHit]:
        """Returns the best lexical matches among unchanged rows, by terms' weights that count all rows as they were."""
        where = shown(scope, unchanged(wanted, as_of), as_of)
        parameters = {
            **where.parameters,
            "q": query.term_ids,
            "w": query.weights,
            "x": query.identifiers,
            "idf": list(weights),
            "adl": mean_dl,
            "limit": limit,
        }
        rows = await self._ch.query(_lexical(where.sql), parameters, settings=self._reads)
        return [LexicalHit(Identity(*row[:3]), row[3], row[4], row[5], bool(row[6])) for row in rows]


def _changed(where: str) -> str:
    return f"""SELECT {SELECTED} FROM ({_AS_OF}) WHERE {where} AND {_NOT_CURRENT}
ORDER BY updated_at DESC, {IDENTITY} LIMIT {{limit:UInt32}}"""


def _neighbours(where: str) -> str:
    return f"""SELECT {IDENTITY}, version, position FROM (
    SELECT {IDENTITY}, version, position, sum(is_seed) OVER (PARTITION BY user_id, session_id ORDER BY position
        ROWS BETWEEN {WINDOW} PRECEDING AND {WINDOW} FOLLOWING) AS near
    FROM (
        SELECT {IDENTITY}, version, ({IDENTITY}) IN {{identities:{IDENTITIES}}} AS is_seed,
            row_number() OVER (PARTITION BY user_id, session_id
                ORDER BY ifNull(event_time, created_at), created_at, version, memory_key) AS position
        FROM ({_AS_OF})
        WHERE {where} AND (user_id, session_id) IN {{around:Array(Tuple(String, String))}}
    )
)
WHERE near > 0 ORDER BY user_id, session_id, position LIMIT {{limit:UInt32}}"""


def _frequencies(where: str) -> str:
    return f"""SELECT sumForEach(arrayMap(t -> toUInt64(has(term_ids, t)), {{q:Array(UInt32)}}))
FROM memory FINAL WHERE {where} AND hasAny(term_ids, {{q:Array(UInt32)}})"""


def _lexical(where: str) -> str:
    return f"""WITH {{q:Array(UInt32)}} AS q, {{w:Array(Float64)}} AS w, {{x:Array(UInt8)}} AS x,
    {{idf:Array(Float64)}} AS idf, {{adl:Float64}} AS adl
SELECT {IDENTITY}, version,
    arraySum((wi, i, f) -> wi * i * f * {K1 + 1} / (f + {K1} * ({1 - B} + {B} * dl / adl)), w, idf, tf) AS bm25,
    arraySum((wi, i, f) -> wi * i * f / (f + {SHARE_K}), w, idf, tf) / arraySum((wi, i) -> wi * i, w, idf) AS share,
    arrayExists((xi, f) -> xi = 1 AND f > 0, x, tf) AS exact
FROM (
    SELECT {IDENTITY}, version, dl, arrayMap(t -> toFloat64(countEqual(term_ids, t)), q) AS tf
    FROM memory FINAL WHERE {where} AND hasAny(term_ids, q)
)
ORDER BY exact DESC, bm25 DESC, {IDENTITY} LIMIT {{limit:UInt32}}"""
