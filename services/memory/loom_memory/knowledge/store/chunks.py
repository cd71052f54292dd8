"""The table `knowledge_chunks`: passages of documents, and the search by words."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, Table, own_write_reads
from loom_memory.domain.analyzer import AnalyzedQuery
from loom_memory.domain.scoring import K1, SHARE_K, B
from loom_memory.knowledge.domain.chunks import ChunkPlace
from loom_memory.knowledge.domain.documents import Document, DocumentFilter
from loom_memory.knowledge.domain.preparation import Prepared
from loom_memory.knowledge.store.filters import IN_SCOPE, LIVE_VERSIONS, in_scope, shown

TABLE: Final = Table.of(
    "knowledge_chunks",
    org="LowCardinality(String)",
    namespace="LowCardinality(String)",
    source_uri="String",
    version="UInt64",
    chunk="UInt32",
    section="UInt32",
    start_offset="UInt32",
    end_offset="UInt32",
    breadcrumb="String",
    text="String",
    term_ids="Array(UInt32)",
    dl="UInt16",
)

PLACE: Final = "source_uri, version, chunk"
PLACES: Final = "Array(Tuple(String, UInt64, UInt32))"

_FETCH: Final = f"""SELECT {PLACE}, section, start_offset, end_offset, text FROM knowledge_chunks
WHERE {IN_SCOPE} AND ({PLACE}) IN {{places:{PLACES}}} AND (source_uri, version) IN {LIVE_VERSIONS}"""

_ADMITTED: Final = f"knowledge_chunks WHERE {IN_SCOPE} AND (source_uri, version) IN admitted"

LEAST_ROWS: Final = 20
"""Passages that the weights of terms assume at least. Source: as for memories: in a namespace of one passage its own
words would weigh a fifth of a word that it does not hold."""


@dataclass(frozen=True, slots=True)
class LexicalHit:
    """One passage that has words of a query, with the numbers of `loom_memory.domain.scoring`."""

    place: ChunkPlace
    section: int
    bm25: float
    share: float
    exact: bool


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """One passage as it is shown."""

    place: ChunkPlace
    section: int
    start: int
    end: int
    text: str


class ChunkRepository:
    """Owns the table `knowledge_chunks`; `embeddings` and `leftovers` name it beside this."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = own_write_reads(ch)

    async def insert(self, document: Document, prepared: Prepared) -> None:
        """Stores the passages of a version, which nobody sees before its document names it."""
        await self._ch.insert(TABLE, _rows(document, prepared))

    async def lexical(self, scope: Scope, wanted: DocumentFilter, query: AnalyzedQuery, limit: int) -> list[LexicalHit]:
        """Returns the best matches by words: whole identifiers first, then by BM25, then by place."""
        where = shown(scope, wanted)
        parameters = {
            **where.parameters,
            "q": query.term_ids,
            "w": query.weights,
            "x": query.identifiers,
            "least": float(LEAST_ROWS),
            "limit": limit,
        }
        rows = await self._ch.query(_lexical(where.sql), parameters, settings=self._reads)
        return [LexicalHit(ChunkPlace(*row[:3]), row[3], row[4], row[5], bool(row[6])) for row in rows]

    async def fetch(self, scope: Scope, places: Sequence[ChunkPlace]) -> dict[ChunkPlace, StoredChunk]:
        """Returns those of some passages whose version is shown now."""
        if not places:
            return {}
        parameters = {**in_scope(scope), "places": list(places)}
        found = await self._ch.query(_FETCH, parameters, settings=self._reads)
        return {(place := ChunkPlace(*row[:3])): StoredChunk(place, *row[3:]) for row in found}


def _lexical(where: str) -> str:
    """The leg of words.

    What weighs terms is counted in the same statement, over the passages that the filter admits, so that a document
    that was stored a moment ago counts.
    """
    return f"""WITH {{q:Array(UInt32)}} AS q, {{w:Array(Float64)}} AS w, {{x:Array(UInt8)}} AS x,
    admitted AS (SELECT source_uri, version FROM knowledge_documents FINAL WHERE {where}),
    ifNull((SELECT greatest(toFloat64(count()), {{least:Float64}}) FROM {_ADMITTED}), 1.0) AS n,
    ifNull((SELECT greatest(avg(dl), 1.0) FROM {_ADMITTED}), 1.0) AS adl
SELECT {PLACE}, section,
    arraySum((wi, i, f) -> wi * i * f * {K1 + 1} / (f + {K1} * ({1 - B} + {B} * dl / adl)), w, idf, tf) AS bm25,
    arraySum((wi, i, f) -> wi * i * f / (f + {SHARE_K}), w, idf, tf) / arraySum((wi, i) -> wi * i, w, idf) AS share,
    arrayExists((xi, f) -> xi = 1 AND f > 0, x, tf) AS exact
FROM (
    SELECT {PLACE}, section, dl, tf,
        arrayMap(d -> log(1 + (greatest(n, d) - d + 0.5) / (d + 0.5)),
            sumForEach(arrayMap(f -> toFloat64(f > 0), tf)) OVER ()) AS idf
    FROM (
        SELECT {PLACE}, section, dl, arrayMap(t -> toFloat64(countEqual(term_ids, t)), q) AS tf
        FROM {_ADMITTED} AND hasAny(term_ids, q)
    )
)
ORDER BY exact DESC, bm25 DESC, {PLACE} LIMIT {{limit:UInt32}}"""


def _rows(document: Document, prepared: Prepared) -> list[tuple[object, ...]]:
    return [
        (
            document.scope.org,
            document.scope.namespace,
            document.source_uri,
            document.version,
            each.chunk.number,
            each.chunk.section,
            each.chunk.start,
            each.chunk.end,
            prepared.sections[each.chunk.section].breadcrumb,
            prepared.text[each.chunk.start : each.chunk.end],
            each.term_ids,
            each.dl,
        )
        for each in prepared.chunks
    ]
