"""Whole memories with their versions and vectors, in the order of their names: what an export reads."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, own_write_reads
from loom_memory.domain.keys import FIRST_KEY_CHUNK
from loom_memory.domain.memory import Filter, Identity, Memory
from loom_memory.domain.records import RecordChunk, RecordVectors
from loom_memory.domain.vectors import VectorSpace
from loom_memory.store.columns import IDENTITIES, IDENTITY, SELECTED, memory_from_row
from loom_memory.store.embeddings import OF_SPACE
from loom_memory.store.filters import IN_SCOPE, in_scope, shown

# The first condition lets the sorting key pass over what lies before; the second decides.
_BEHIND: Final = "memory_key >= {after_key:String} AND (" + IDENTITY + ") > {after:Tuple(String, String, String)}"
_NAMED: Final = f"{IN_SCOPE} AND ({IDENTITY}) IN {{identities:{IDENTITIES}}}"

# What of a memory's versions counts, as of its history: neither withdrawn nor of a life that a deletion ended. Of an
# interrupted write and its successor, which has the same revision, the successor counts.
_VERSIONS: Final = f"""SELECT {SELECTED} FROM memory_versions
LEFT JOIN (
    SELECT {IDENTITY}, max(version) AS ended FROM memory_versions
    WHERE {_NAMED} AND tombstoned_at IS NOT NULL GROUP BY {IDENTITY}
) AS lives USING ({IDENTITY})
WHERE {_NAMED} AND tombstoned_at IS NULL AND revision > 0 AND value != '' AND version <= {{upto:UInt64}}
    AND version > ended
    AND ({IDENTITY}, version) NOT IN (SELECT {IDENTITY}, version FROM memory_versions WHERE {_NAMED} AND revision = 0)
ORDER BY {IDENTITY}, revision, version DESC LIMIT 1 BY {IDENTITY}, revision LIMIT {{limit:UInt32}}"""

_VECTORS: Final = f"""SELECT {IDENTITY}, version, chunk, start_offset, end_offset, embedding FROM memory_embeddings
WHERE {_NAMED} AND {OF_SPACE} ORDER BY {IDENTITY}, version, chunk LIMIT {{limit:UInt32}}"""

_MOST_ROWS: Final = 2**32 - 1


class TransferRepository:
    """Reads `memory`, `memory_versions` and `memory_embeddings` by whole pages."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = own_write_reads(ch)

    async def page(self, scope: Scope, wanted: Filter, now: datetime, after: Identity, limit: int) -> list[Memory]:
        """Returns memories that are shown, in order of identity, from the first behind `after` on."""
        kept = shown(scope, wanted, now)
        where = kept.sql
        sql = f"""SELECT {SELECTED} FROM memory FINAL WHERE {where} AND {_BEHIND}
ORDER BY {IDENTITY} LIMIT {{limit:UInt32}}"""
        parameters = {**kept.parameters, "after_key": after.key, "after": tuple(after), "limit": limit}
        rows = await self._ch.query(sql, parameters, settings=self._reads)
        return [memory_from_row(row) for row in rows]

    async def versions(self, scope: Scope, identities: Sequence[Identity], upto: int) -> dict[Identity, list[Memory]]:
        """Returns the versions of memories up to one of the store's numbers, oldest first, of their present lives."""
        if not identities:
            return {}
        parameters = {**in_scope(scope), "identities": list(identities), "upto": upto, "limit": _MOST_ROWS}
        found: dict[Identity, list[Memory]] = {}
        for row in await self._ch.query(_VERSIONS, parameters, settings=self._reads):
            memory = memory_from_row(row)
            found.setdefault(memory.identity, []).append(memory)
        return found

    async def vectors(
        self, scope: Scope, identities: Sequence[Identity], space: VectorSpace
    ) -> dict[tuple[Identity, int], RecordVectors]:
        """Returns the vectors of each version of memories that has any of the space."""
        if not identities:
            return {}
        parameters = {**in_scope(scope), **space._asdict(), "identities": list(identities), "limit": _MOST_ROWS}
        chunks: dict[tuple[Identity, int], list[RecordChunk]] = {}
        for row in await self._ch.query(_VECTORS, parameters, settings=self._reads):
            of_key = row[4] >= FIRST_KEY_CHUNK
            held = chunks.setdefault((Identity(*row[:3]), row[3]), [])
            held.append(RecordChunk(row[5], row[6], of_key, row[7]))
        return {placed: RecordVectors(space.model, space.dim, tuple(held)) for placed, held in chunks.items()}
