"""The table `memory_embeddings`: the vectors of every memory, by chunk."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, Table, own_write_reads
from loom_memory.domain.memory import Filter, Identity
from loom_memory.store.columns import IDENTITIES, IDENTITY, KEY_RANGE, KeyRange, key_range_parameters
from loom_memory.store.filters import IN_SCOPE, in_scope, of_owner, shown
from loom_memory.store.memories import POINT_READ
from loom_memory.store.memory_sql import live_versions
from loom_memory.store.versions import Placed

_TIME: Final = "Nullable(DateTime64(3, 'UTC'))"

TABLE: Final = Table.of(
    "memory_embeddings",
    org="LowCardinality(String)",
    namespace="LowCardinality(String)",
    embedding_model="LowCardinality(String)",
    memory_key="String",
    user_id="String",
    session_id="String",
    chunk="UInt16",
    version="UInt64",
    start_offset="UInt32",
    end_offset="UInt32",
    embedding="Array(Float32)",
    embedding_dim="UInt16",
    status="LowCardinality(String)",
    invalid_at=_TIME,
    attestation="LowCardinality(String)",
    embed_retry_at=_TIME,
)

# A scan of 100k vectors is one task unless the engine is told to split it (61 ms then, 39 so; measured).
_PARALLEL: Final = {
    "max_threads": 2,
    "merge_tree_min_rows_for_concurrent_read": 1,
    "merge_tree_min_bytes_for_concurrent_read": 1,
}

# Queries of one statement: their vectors are part of its text, which stays below 256 KiB.
_QUERIES_AT_ONCE: Final = 50

_DISTANCE: Final = "1 - cosineDistance(embedding, {vector:Array(Float32)}) AS cosine"
OF_SPACE: Final = "embedding_model = {model:String} AND embedding_dim = {dim:UInt16}"
"""Keeps the rows of one `VectorSpace`; binds its fields."""

_COSINES: Final = f"""SELECT {IDENTITY}, version, {_DISTANCE} FROM memory_embeddings
WHERE {IN_SCOPE} AND {OF_SPACE} AND ({IDENTITY}) IN {{identities:{IDENTITIES}}}"""

_SCOPES: Final = "SELECT org, namespace FROM memory_embeddings GROUP BY org, namespace ORDER BY org, namespace"

# Rows of no current version: superseded, deleted, or of a write that did not end.
_STALE: Final = f"""SELECT DISTINCT {IDENTITY}, version FROM memory_embeddings
WHERE {KEY_RANGE} AND version < {{before:UInt64}} AND ({IDENTITY}, version) NOT IN (
    SELECT {IDENTITY}, version FROM memory FINAL WHERE {KEY_RANGE} AND tombstoned_at IS NULL)
ORDER BY {IDENTITY}, version LIMIT {{limit:UInt32}}"""

REMOVE: Final = f"""ALTER TABLE memory_embeddings DELETE
WHERE org = {{org:String}} AND namespace = {{namespace:String}}
    AND ({IDENTITY}, version) IN {{stale:Array(Tuple(String, String, String, UInt64))}}"""


@dataclass(frozen=True, slots=True)
class EmbeddedChunk:
    """One chunk of a version.

    Attributes:
        chunk: Its number; from `domain.keys.FIRST_KEY_CHUNK` on it is of the key, and its offsets are 0.
        start_offset: Code point at which the chunk begins in the value.
        end_offset: Code point behind its last.
        vector: float32 [dim], of unit length; empty for a stub, whose `chunk` counts the attempts so far.
        status: As the row that it stands beside has it, like the two after it.
        embed_retry_at: When a stub is tried again; None for at once.
    """

    scope: Scope
    identity: Identity
    version: int
    chunk: int
    start_offset: int
    end_offset: int
    vector: Sequence[float]
    status: str = ""
    invalid_at: datetime | None = None
    attestation: str = ""
    embed_retry_at: datetime | None = None


class VectorHit(NamedTuple):
    """One chunk near a query; `version` says which version of the memory it belongs to."""

    identity: Identity
    version: int
    cosine: float


@dataclass(frozen=True, slots=True)
class QueryVector:
    """A query as the embedder sees it; only rows of the same model are compared."""

    model: str
    vector: Sequence[float]


class EmbeddingRepository:
    """Reads and writes the table `memory_embeddings`; beside it only `rewrites` and `stubs` name it."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = own_write_reads(ch)

    async def insert(self, model: str, chunks: Sequence[EmbeddedChunk]) -> None:
        """Stores chunks."""
        await self._ch.insert(TABLE, [_row(model, chunk) for chunk in chunks])

    async def nearest(self, scope: Scope, wanted: Filter, query: QueryVector, limit: int) -> list[VectorHit]:
        """Returns the nearest chunks of any version, best first; of the filter only user and session count.

        A memory may come more than once, and what is superseded or deleted comes too.
        """
        where = of_owner(scope, wanted)
        return await self._hits(_scan(where.sql), {**where.parameters, **_query(query), "limit": limit})

    async def nearest_live(
        self, scope: Scope, wanted: Filter, now: datetime, query: QueryVector, limit: int
    ) -> list[VectorHit]:
        """Returns the nearest memories that the whole filter admits, best first, each once, by its best chunk."""
        where = shown(scope, wanted, now)
        return await self._hits(_scan_live(where.sql), {**where.parameters, **_query(query), "limit": limit})

    async def near_each(
        self,
        scope: Scope,
        wanted: Filter,
        now: datetime,
        queries: Sequence[QueryVector],
        *,
        least: float,
        limit: int,
    ) -> list[list[VectorHit]]:
        """Returns what `nearest_live` finds of each query at `least` or more; the queries share one model."""
        where = shown(scope, wanted, now)
        found: list[list[VectorHit]] = []
        for start in range(0, len(queries), _QUERIES_AT_ONCE):
            some = queries[start : start + _QUERIES_AT_ONCE]
            parameters = {
                **where.parameters,
                "model": some[0].model,
                "dim": len(some[0].vector),
                "vectors": [list(query.vector) for query in some],
                "least": least,
                "limit": limit,
            }
            rows = await self._ch.query(_scan_each(where.sql), parameters, settings={**_PARALLEL, **self._reads})
            hits: list[list[VectorHit]] = [[] for _ in some]
            for row in rows:
                hits[row[5] - 1].append(VectorHit(Identity(*row[:3]), row[3], row[4]))
            found += hits
        return found

    async def cosines(
        self, scope: Scope, query: QueryVector, identities: Sequence[Identity]
    ) -> dict[tuple[Identity, int], float]:
        """Returns the best cosine of each version of `identities` that has vectors."""
        if not identities:
            return {}
        parameters = {**in_scope(scope), **_query(query), "identities": list(identities)}
        hits = await self._hits(_COSINES, parameters, POINT_READ)
        best: dict[tuple[Identity, int], float] = {}
        for hit in hits:
            version = hit.identity, hit.version
            best[version] = max(hit.cosine, best.get(version, hit.cosine))
        return best

    async def scopes(self) -> list[Scope]:
        """Returns every namespace that has vectors."""
        return [Scope(*row) for row in await self._ch.query(_SCOPES)]

    async def stale(self, keys: KeyRange, before: int, limit: int) -> list[Placed]:
        """Returns versions older than `before` that have rows here and are not current."""
        rows = await self._ch.query(_STALE, {**key_range_parameters(keys), "before": before, "limit": limit})
        return [(Identity(*row[:3]), row[3]) for row in rows]

    async def remove(self, scope: Scope, stale: Sequence[Placed]) -> None:
        """Removes versions, in the background of the store."""
        gone = [(*identity, version) for identity, version in stale]
        await self._ch.command(REMOVE, {"org": scope.org, "namespace": scope.namespace, "stale": gone})

    async def _hits(
        self, sql: str, parameters: dict[str, object], settings: Mapping[str, int] = _PARALLEL
    ) -> list[VectorHit]:
        rows = await self._ch.query(sql, parameters, settings={**settings, **self._reads})
        return [VectorHit(Identity(*row[:3]), row[3], row[4]) for row in rows]


def _scan(where: str) -> str:
    """Plain, without FINAL and without a join, which cost more than reading some rows too many; callers check them."""
    return f"""SELECT {IDENTITY}, version, {_DISTANCE} FROM memory_embeddings
WHERE {where} AND {OF_SPACE}
ORDER BY cosine DESC, {IDENTITY}, version, chunk LIMIT {{limit:UInt32}}"""


def _scan_live(where: str) -> str:
    return f"""SELECT {IDENTITY}, version, {_DISTANCE} FROM memory_embeddings
WHERE {IN_SCOPE} AND {OF_SPACE} AND ({IDENTITY}, version) IN ({live_versions(where)})
ORDER BY cosine DESC, {IDENTITY}, version, chunk LIMIT 1 BY {IDENTITY} LIMIT {{limit:UInt32}}"""


def _scan_each(where: str) -> str:
    """One scan for many queries: a row is kept with the number of each query that it is near."""
    return f"""SELECT {IDENTITY}, version, cosine, number FROM (
    SELECT {IDENTITY}, version, near.1 AS cosine, near.2 AS number FROM (
        SELECT {IDENTITY}, version, chunk, arrayJoin(arrayFilter(pair -> pair.1 >= {{least:Float64}}, arrayMap(
            (distance, place) -> (1 - distance, place),
            arrayMap(query -> cosineDistance(embedding, query), {{vectors:Array(Array(Float32))}}),
            arrayEnumerate({{vectors:Array(Array(Float32))}})))) AS near
        FROM memory_embeddings
        WHERE {IN_SCOPE} AND {OF_SPACE} AND ({IDENTITY}, version) IN ({live_versions(where)})
    )
    ORDER BY number, cosine DESC, {IDENTITY}, version, chunk LIMIT 1 BY number, {IDENTITY}
)
ORDER BY number, cosine DESC, {IDENTITY} LIMIT {{limit:UInt32}} BY number"""


def _query(query: QueryVector) -> dict[str, object]:
    return {"model": query.model, "dim": len(query.vector), "vector": list(query.vector)}


def _row(model: str, chunk: EmbeddedChunk) -> tuple[object, ...]:
    return (
        chunk.scope.org,
        chunk.scope.namespace,
        model,
        *chunk.identity,
        chunk.chunk,
        chunk.version,
        chunk.start_offset,
        chunk.end_offset,
        chunk.vector,
        len(chunk.vector),
        chunk.status,
        chunk.invalid_at,
        chunk.attestation,
        chunk.embed_retry_at,
    )
