"""Vectors compared by their first numbers alone: a narrower embedder, seen through the wider one's vectors."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, own_write_reads
from loom_memory.domain.memory import Filter, Identity
from loom_memory.store.columns import IDENTITIES, IDENTITY
from loom_memory.store.embeddings import OF_SPACE, QueryVector, VectorHit
from loom_memory.store.filters import IN_SCOPE, in_scope, of_owner, shown
from loom_memory.store.memory_sql import live_versions

_CLOSENESS: Final = "1 - cosineDistance(arraySlice(embedding, 1, {width:UInt16}), {vector:Array(Float32)}) AS cosine"

_COSINES: Final = f"""SELECT {IDENTITY}, version, max(cosine) FROM (
    SELECT {IDENTITY}, version, {_CLOSENESS} FROM memory_embeddings
    WHERE {IN_SCOPE} AND {OF_SPACE} AND ({IDENTITY}) IN {{identities:{IDENTITIES}}}
)
GROUP BY {IDENTITY}, version ORDER BY {IDENTITY}, version"""


class PrefixVectors:
    """Compares the first `width` numbers of vectors; for searches that are asked again, not for those of callers."""

    def __init__(self, ch: ClickHouse, width: int) -> None:
        self._ch = ch
        self._width = width
        self._reads = own_write_reads(ch)

    async def nearest(self, scope: Scope, wanted: Filter, query: QueryVector, limit: int) -> list[VectorHit]:
        """See `EmbeddingRepository.nearest`."""
        where = of_owner(scope, wanted)
        rows = await self._ch.query(
            _scan(where.sql), {**where.parameters, **self._bound(query), "limit": limit}, settings=self._reads
        )
        return [VectorHit(Identity(*row[:3]), row[3], row[4]) for row in rows]

    async def nearest_live(
        self, scope: Scope, wanted: Filter, now: datetime, query: QueryVector, limit: int
    ) -> list[VectorHit]:
        """See `EmbeddingRepository.nearest_live`."""
        where = shown(scope, wanted, now)
        rows = await self._ch.query(
            _nearest(where.sql), {**where.parameters, **self._bound(query), "limit": limit}, settings=self._reads
        )
        return [VectorHit(Identity(*row[:3]), row[3], row[4]) for row in rows]

    async def cosines(
        self, scope: Scope, query: QueryVector, identities: Sequence[Identity]
    ) -> dict[tuple[Identity, int], float]:
        """See `EmbeddingRepository.cosines`."""
        if not identities:
            return {}
        parameters = {**in_scope(scope), **self._bound(query), "identities": list(identities)}
        rows = await self._ch.query(_COSINES, parameters, settings=self._reads)
        return {(Identity(*row[:3]), row[3]): row[4] for row in rows}

    def _bound(self, query: QueryVector) -> dict[str, object]:
        return {
            "model": query.model,
            "dim": len(query.vector),
            "width": self._width,
            "vector": list(query.vector[: self._width]),
        }


def _scan(where: str) -> str:
    return f"""SELECT {IDENTITY}, version, {_CLOSENESS} FROM memory_embeddings
WHERE {where} AND {OF_SPACE}
ORDER BY cosine DESC, {IDENTITY}, version, chunk LIMIT {{limit:UInt32}}"""


def _nearest(where: str) -> str:
    return f"""SELECT {IDENTITY}, version, {_CLOSENESS} FROM memory_embeddings
WHERE {IN_SCOPE} AND {OF_SPACE} AND ({IDENTITY}, version) IN ({live_versions(where)})
ORDER BY cosine DESC, {IDENTITY}, version, chunk LIMIT 1 BY {IDENTITY} LIMIT {{limit:UInt32}}"""
