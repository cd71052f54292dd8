"""Legs of a search that read the table `memory` by what a question names: keys, tags and times."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, own_write_reads
from loom_memory.domain.findings import Traits
from loom_memory.domain.memory import Filter, Identity
from loom_memory.domain.names import NamedExactly
from loom_memory.domain.narrowing import Span
from loom_memory.store.columns import IDENTITIES, IDENTITY
from loom_memory.store.filters import shown
from loom_memory.store.memories import POINT_READ

_NAMED: Final = f"({IDENTITY}) IN {{identities:{IDENTITIES}}}"


@dataclass(frozen=True, slots=True)
class NamedHit:
    """A memory whose key or tag a question names."""

    identity: Identity
    has_key: bool
    has_tag: bool


class LegRepository:
    """Reads the table `memory` beside `MemoryRepository`."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = {**POINT_READ, **own_write_reads(ch)}

    async def named(
        self, scope: Scope, wanted: Filter, now: datetime, names: NamedExactly, limit: int
    ) -> list[NamedHit]:
        """Returns memories with one of the keys or tags, those with a key first, then the newest."""
        if not names:
            return []
        where = shown(scope, wanted, now)
        parameters = {**where.parameters, "keys": list(names.keys), "labels": list(names.tags), "limit": limit}
        rows = await self._ch.query(_named(where.sql), parameters, settings=self._reads)
        return [NamedHit(Identity(*row[:3]), bool(row[3]), bool(row[4])) for row in rows]

    async def within(self, scope: Scope, wanted: Filter, now: datetime, span: Span, limit: int) -> list[Identity]:
        """Returns what happened in a stretch of time, newest first."""
        happened = _both(wanted.more.happened, span)
        where = shown(scope, replace(wanted, more=replace(wanted.more, happened=happened)), now)
        rows = await self._ch.query(_within(where.sql), {**where.parameters, "limit": limit}, settings=self._reads)
        return [Identity(*row) for row in rows]

    async def traits(self, scope: Scope, wanted: Filter, now: datetime, identities: Sequence[Identity]) -> list[Traits]:
        """Returns what each of `identities` that is shown is counted by."""
        if not identities:
            return []
        where = shown(scope, wanted, now)
        parameters = {**where.parameters, "identities": list(identities)}
        rows = await self._ch.query(_traits(where.sql), parameters, settings=self._reads)
        return [Traits(row[0], tuple(row[1]), row[2], row[3]) for row in rows]


def _both(one: Span, other: Span) -> Span:
    """Returns the stretch that lies in both."""
    starts = [moment for moment in (one.since, other.since) if moment is not None]
    ends = [moment for moment in (one.until, other.until) if moment is not None]
    return Span(max(starts, default=None), min(ends, default=None))


def _named(where: str) -> str:
    return f"""SELECT {IDENTITY}, has({{keys:Array(String)}}, memory_key) AS has_key,
    hasAny(tags, {{labels:Array(String)}}) AS has_tag
FROM memory FINAL
WHERE {where} AND (memory_key IN {{keys:Array(String)}} OR hasAny(tags, {{labels:Array(String)}}))
ORDER BY has_key DESC, updated_at DESC, {IDENTITY} LIMIT {{limit:UInt32}}"""


def _within(where: str) -> str:
    return f"""SELECT {IDENTITY} FROM memory FINAL WHERE {where}
ORDER BY ifNull(event_time, created_at) DESC, {IDENTITY} LIMIT {{limit:UInt32}}"""


def _traits(where: str) -> str:
    return f"""SELECT kind, tags, agent, formatDateTime(ifNull(event_time, created_at), '%Y-%m', 'UTC')
FROM memory FINAL WHERE {where} AND {_NAMED}"""
