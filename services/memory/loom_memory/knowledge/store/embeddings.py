"""The table `knowledge_embeddings`: the vectors of passages, and the search by meaning."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, Table, own_write_reads
from loom_memory.domain.vectors import VectorSpace
from loom_memory.knowledge.domain.chunks import ChunkPlace
from loom_memory.knowledge.domain.documents import Document, DocumentFilter
from loom_memory.knowledge.store.chunks import PLACE, PLACES
from loom_memory.knowledge.store.filters import IN_SCOPE, LIVE_VERSIONS, in_scope, of_document, shown

TABLE: Final = Table.of(
    "knowledge_embeddings",
    org="LowCardinality(String)",
    namespace="LowCardinality(String)",
    embedding_model="LowCardinality(String)",
    source_uri="String",
    version="UInt64",
    chunk="UInt32",
    part="UInt16",
    embedding="Array(Float32)",
    embedding_dim="UInt16",
)

# As for memories: a scan of many vectors is one task unless the engine is told to split it.
_PARALLEL: Final = {
    "max_threads": 2,
    "merge_tree_min_rows_for_concurrent_read": 1,
    "merge_tree_min_bytes_for_concurrent_read": 1,
}
OF_SPACE: Final = "embedding_model = {model:String} AND embedding_dim = {dim:UInt16}"
"""Keeps the rows of one `VectorSpace`; binds its fields."""

_COSINE: Final = "1 - cosineDistance(embedding, {vector:Array(Float32)})"
_COSINES: Final = f"""SELECT {PLACE}, max({_COSINE}) FROM knowledge_embeddings
WHERE {IN_SCOPE} AND {OF_SPACE} AND ({PLACE}) IN {{places:{PLACES}}} GROUP BY {PLACE}"""
_EMBEDDED: Final = f"""SELECT uniqExact(chunk) FROM knowledge_embeddings
WHERE {IN_SCOPE} AND {OF_SPACE} AND source_uri = {{source_uri:String}} AND version = {{version:UInt64}}"""
# Of the passages that are shown, those without vectors of the space, and whether any has others.
_PENDING: Final = f"""SELECT
    (SELECT count() FROM knowledge_chunks WHERE {IN_SCOPE} AND (source_uri, version) IN {LIVE_VERSIONS}),
    (SELECT uniqExact(source_uri, version, chunk) FROM knowledge_embeddings
        WHERE {IN_SCOPE} AND {OF_SPACE} AND (source_uri, version) IN {LIVE_VERSIONS}),
    (SELECT count() FROM knowledge_embeddings
        WHERE {IN_SCOPE} AND NOT ({OF_SPACE}) AND (source_uri, version) IN {LIVE_VERSIONS})"""


@dataclass(frozen=True, slots=True)
class ChunkVectors:
    """The vectors of one passage, float32 [dim] each, of unit length."""

    place: ChunkPlace
    vectors: Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True)
class VectorHit:
    """One passage near a query, by the nearest of its vectors."""

    place: ChunkPlace
    section: int
    cosine: float


@dataclass(frozen=True, slots=True)
class Pending:
    """Passages of a namespace: all, those without vectors of the served model, and vectors of others."""

    chunks: int
    waiting: int
    others: int

    @property
    def is_all_of_another_model(self) -> bool:
        """Whether there are vectors, and none of the served model."""
        return self.chunks > 0 and self.waiting == self.chunks and self.others > 0


class KnowledgeEmbeddingRepository:
    """Reads and writes the table `knowledge_embeddings`; beside it only `rewrites` and `leftovers` name it."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = own_write_reads(ch)

    async def insert(self, scope: Scope, model: str, rows: Sequence[ChunkVectors]) -> None:
        """Stores vectors."""
        await self._ch.insert(
            TABLE,
            [
                (scope.org, scope.namespace, model, *row.place, part, vector, len(vector))
                for row in rows
                for part, vector in enumerate(row.vectors)
            ],
        )

    async def nearest(
        self, scope: Scope, wanted: DocumentFilter, space: VectorSpace, vector: Sequence[float], limit: int
    ) -> list[VectorHit]:
        """Returns the nearest passages that the filter admits, best first, each once."""
        where = shown(scope, wanted)
        parameters = {**where.parameters, **_query(space, vector), "limit": limit}
        rows = await self._ch.query(_nearest(where.sql), parameters, settings={**_PARALLEL, **self._reads})
        return [VectorHit(ChunkPlace(*row[:3]), row[3], row[4]) for row in rows]

    async def cosines(
        self, scope: Scope, space: VectorSpace, vector: Sequence[float], places: Sequence[ChunkPlace]
    ) -> dict[ChunkPlace, float]:
        """Returns the best cosine of each of some passages that has vectors."""
        if not places:
            return {}
        parameters = {**in_scope(scope), **_query(space, vector), "places": list(places)}
        rows = await self._ch.query(_COSINES, parameters, settings=self._reads)
        return {ChunkPlace(*row[:3]): row[3] for row in rows}

    async def embedded(self, document: Document, space: VectorSpace) -> int:
        """Counts the passages of a version that have vectors of the space."""
        parameters = {
            **of_document(document.scope, document.source_uri),
            **space._asdict(),
            "version": document.version,
        }
        return int((await self._ch.query(_EMBEDDED, parameters, settings=self._reads)).scalar())

    async def pending(self, scope: Scope, space: VectorSpace) -> Pending:
        """Counts what waits in a namespace; reads no vectors."""
        parameters: Mapping[str, object] = {**in_scope(scope), **space._asdict()}
        chunks, embedded, others = (await self._ch.query(_PENDING, parameters, settings=self._reads)).rows[0]
        return Pending(chunks, max(chunks - embedded, 0), others)


def _nearest(where: str) -> str:
    return f"""SELECT {PLACE}, section, cosine FROM (
    SELECT {PLACE}, max({_COSINE}) AS cosine FROM knowledge_embeddings
    WHERE {IN_SCOPE} AND {OF_SPACE}
        AND (source_uri, version) IN (SELECT source_uri, version FROM knowledge_documents FINAL WHERE {where})
    GROUP BY {PLACE} ORDER BY cosine DESC, {PLACE} LIMIT {{limit:UInt32}}
) AS near
INNER JOIN (
    SELECT {PLACE}, section FROM knowledge_chunks
    WHERE {IN_SCOPE} AND (source_uri, version) IN {LIVE_VERSIONS}
) AS placed USING ({PLACE})
ORDER BY cosine DESC, {PLACE} LIMIT {{limit:UInt32}}"""


def _query(space: VectorSpace, vector: Sequence[float]) -> dict[str, object]:
    return {**space._asdict(), "vector": list(vector)}
