"""The table `memory_embeddings` where vectors are still to come: stubs, whose width is 0.

A stub is the row of one version; `chunk` counts the attempts to embed it, and each failure adds a row with the time of
the next. A stub that is held counts no attempt: only its time is changed. Once the version has its vectors all of its
stubs are removed.
"""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, own_write_reads
from loom_memory.domain.memory import Filter, Identity
from loom_memory.domain.vectors import VectorSpace
from loom_memory.domain.writers import NOBODY, Held
from loom_memory.store.columns import IDENTITY, KEY_RANGE, KeyRange, key_range_parameters
from loom_memory.store.embeddings import OF_SPACE, EmbeddedChunk
from loom_memory.store.filters import IN_SCOPE, in_scope, shown
from loom_memory.store.key_sql import KEY_ROW, SAYS_WORDS, VALUE_ROW
from loom_memory.store.rewrites import WaitingText, waiting_parts
from loom_memory.store.versions import Placed

_ROW: Final = f"org, namespace, {IDENTITY}"
_STUB: Final = "embedding_dim = 0"
_IS_STUB: Final = f"({_ROW}) IN (SELECT {_ROW} FROM memory_embeddings WHERE {_STUB})"
_EMBEDDED: Final = f"""({_ROW}, version) IN (
    SELECT {_ROW}, version FROM memory_embeddings WHERE {OF_SPACE} AND {VALUE_ROW} AND {_IS_STUB})"""
_KEY_WAITS: Final = f"""({SAYS_WORDS} AND ({_ROW}, version) NOT IN (
    SELECT {_ROW}, version FROM memory_embeddings WHERE {OF_SPACE} AND {KEY_ROW} AND {_IS_STUB}))"""
_LIVE: Final = f"""SELECT {_ROW}, version, value, actor FROM memory FINAL
    WHERE {_IS_STUB} AND tombstoned_at IS NULL AND (expires_at IS NULL OR expires_at > {{now:DateTime64(3, 'UTC')}})"""

# Reads one narrow column, which is nearly all one value, and more of the few rows that it finds.
_ANY: Final = f"""SELECT count() FROM (
    SELECT max(embed_retry_at) AS retry_at FROM memory_embeddings
    WHERE {_STUB} AND NOT has({{held_orgs:Array(String)}}, org) GROUP BY {_ROW}, version
) WHERE retry_at IS NULL OR retry_at <= {{now:DateTime64(3, 'UTC')}}"""

_DUE: Final = f"""SELECT {_ROW}, version, value, attempts, kept_status, kept_invalid_at, kept_attestation, actor,
    {_KEY_WAITS} AS key_waits
FROM ({_LIVE}) AS live
INNER JOIN (
    SELECT {_ROW}, version, max(chunk) AS attempts, max(embed_retry_at) AS retry_at, max(status) AS kept_status,
        max(invalid_at) AS kept_invalid_at, max(attestation) AS kept_attestation
    FROM memory_embeddings WHERE {_STUB} GROUP BY {_ROW}, version
) AS stubs USING ({_ROW}, version)
WHERE (retry_at IS NULL OR retry_at <= {{now:DateTime64(3, 'UTC')}})
    AND NOT has({{held_orgs:Array(String)}}, org)
    AND NOT has({{held_writers:Array(Tuple(String, String, String, String))}},
        (toString(org), toString(namespace), toString(actor), if({{by_user:Bool}}, user_id, '')))
    AND NOT ({_EMBEDDED})
ORDER BY version DESC, {_ROW} LIMIT {{limit:UInt32}}"""

_FINISHED: Final = f"""SELECT DISTINCT {_ROW}, version FROM memory_embeddings WHERE {_STUB} AND {_EMBEDDED}
ORDER BY {_ROW}, version LIMIT {{limit:UInt32}}"""

REMOVE: Final = f"""ALTER TABLE memory_embeddings DELETE WHERE {IN_SCOPE} AND {_STUB}
    AND ({IDENTITY}, version) IN {{placed:Array(Tuple(String, String, String, UInt64))}}"""

# In place: a row more for each time would let a writer who stays refused fill the table.
REST: Final = f"""ALTER TABLE memory_embeddings UPDATE embed_retry_at = {{until:DateTime64(3, 'UTC')}}
WHERE {_STUB} AND org IN {{orgs:Array(String)}}
    AND ({_ROW}, version) IN {{placed:Array(Tuple(String, String, String, String, String, UInt64))}}"""

_WITHOUT_ROWS: Final = f"""({IDENTITY}, version) NOT IN (
    SELECT {IDENTITY}, version FROM memory_embeddings WHERE {KEY_RANGE} AND {VALUE_ROW})"""

_STUBS: Final = f"SELECT count() FROM ({_LIVE}) WHERE NOT ({_EMBEDDED})"

_PENDING: Final = f"""SELECT count() FROM memory FINAL
WHERE tombstoned_at IS NULL AND (expires_at IS NULL OR expires_at > {{now:DateTime64(3, 'UTC')}})
    AND ({_ROW}, version) NOT IN (SELECT {_ROW}, version FROM memory_embeddings WHERE {OF_SPACE} AND {VALUE_ROW})"""


@dataclass(frozen=True, slots=True)
class Stub:
    """A text whose vectors are still to come, and how often that failed."""

    waiting: WaitingText
    attempts: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """Memories of the whole store that are shown and have no vector of the served model.

    Attributes:
        pending: All of them.
        stubs: Those of them that the embedding worker takes by itself.
    """

    pending: int
    stubs: int


class StubRepository:
    """Finds stubs and removes them; they are written like any row of vectors."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = own_write_reads(ch)

    async def any_due(self, now: datetime, held: Held = NOBODY) -> bool:
        """Says whether the time of any stub has come, also of one that needs no vectors any more; costs little.

        Of `held` only organisations count.
        """
        parameters = {"now": now, "held_orgs": sorted(held.orgs)}
        return bool((await self._ch.query(_ANY, parameters, settings=self._reads)).scalar())

    async def due(self, space: VectorSpace, now: datetime, limit: int, held: Held = NOBODY) -> list[Stub]:
        """Returns stubs of current versions whose time has come, newest first, but for those that are held."""
        parameters = {
            **space._asdict(),
            "now": now,
            "limit": limit,
            "held_orgs": sorted(held.orgs),
            "held_writers": sorted(held.writers),
            "by_user": held.by_user,
        }
        rows = await self._ch.query(_DUE, parameters, settings=self._reads)
        return [
            Stub(
                WaitingText(
                    Scope(row[0], row[1]),
                    Identity(*row[2:5]),
                    row[5],
                    row[6],
                    row[8],
                    row[9],
                    row[10],
                    row[11],
                    waits=waiting_parts(value=True, key=row[12]),
                ),
                row[7],
            )
            for row in rows
        ]

    async def rest(self, stubs: Sequence[Stub], until: datetime) -> None:
        """Leaves stubs out until a time, with no attempt counted, and returns once that is so."""
        waiting = [stub.waiting for stub in stubs]
        placed = [(*astuple(text.scope), *text.identity, text.version) for text in waiting]
        parameters = {"until": until, "orgs": sorted({text.scope.org for text in waiting}), "placed": placed}
        await self._ch.command(REST, parameters, settings={"mutations_sync": 2})

    async def finished(self, space: VectorSpace, limit: int) -> dict[Scope, list[Placed]]:
        """Returns versions that have both stubs and vectors."""
        rows = await self._ch.query(_FINISHED, {**space._asdict(), "limit": limit}, settings=self._reads)
        found: dict[Scope, list[Placed]] = {}
        for row in rows:
            found.setdefault(Scope(row[0], row[1]), []).append((Identity(*row[2:5]), row[5]))
        return found

    async def remove(self, scope: Scope, placed: Sequence[Placed]) -> None:
        """Removes the stubs of these versions, and returns once they are gone: they would be found finished again."""
        flat = [(*identity, version) for identity, version in placed]
        await self._ch.command(REMOVE, {**in_scope(scope), "placed": flat}, settings={"mutations_sync": 2})

    async def missing(self, keys: KeyRange, now: datetime, limit: int) -> list[EmbeddedChunk]:
        """Returns a stub for each memory that has no row of vectors at all, in order of identity."""
        where = shown(keys.scope, Filter(), now)
        sql = f"""SELECT {IDENTITY}, version, lengthUTF8(value), invalid_at, attestation FROM memory FINAL
WHERE {where.sql} AND {KEY_RANGE} AND {_WITHOUT_ROWS} ORDER BY {IDENTITY} LIMIT {{limit:UInt32}}"""
        parameters = {**where.parameters, **key_range_parameters(keys), "limit": limit}
        rows = await self._ch.query(sql, parameters, settings=self._reads)
        return [
            EmbeddedChunk(
                keys.scope, Identity(*row[:3]), row[3], 0, 0, row[4], (), invalid_at=row[5], attestation=row[6]
            )
            for row in rows
        ]

    async def waiting(self, space: VectorSpace, now: datetime) -> Waiting:
        """Counts what waits in the whole store."""
        parameters = {**space._asdict(), "now": now}
        pending = (await self._ch.query(_PENDING, parameters, settings=self._reads)).scalar()
        stubs = (await self._ch.query(_STUBS, parameters, settings=self._reads)).scalar() if pending else 0
        return Waiting(pending, stubs)
