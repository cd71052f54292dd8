"""Finding sections by words and meaning."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from loom_common.call import Scope
from loom_common.errors import InvalidArgument, LoomError
from loom_common.together import both
from loom_memory.app.embedding import EmbeddingPort, ServedModel
from loom_memory.app.llm import LlmPort
from loom_memory.app.thresholds import ThresholdsInForce
from loom_memory.domain.analyzer import analyze_query
from loom_memory.domain.vectors import VectorSpace
from loom_memory.knowledge.domain.documents import Document, DocumentFilter
from loom_memory.knowledge.domain.noise import asked_for
from loom_memory.knowledge.domain.ranking import MIN_SHOWN, Candidate, Ranked, rank, reranked
from loom_memory.knowledge.domain.sections import Section
from loom_memory.knowledge.store.chunks import ChunkRepository, LexicalHit, StoredChunk
from loom_memory.knowledge.store.documents import DocumentRepository
from loom_memory.knowledge.store.embeddings import KnowledgeEmbeddingRepository, Pending, VectorHit
from loom_memory.knowledge.store.sections import SectionRepository

logger = logging.getLogger(__name__)

NO_RERANKER: Final = "none"
# Source: as for memories; each row costs time, and 50 to 200 differ by little.
_POOL: Final = 60
# Most sections that a reranker reads.
_RERANKED: Final = 50
# A document that is stored anew between two statements of a search makes it begin again. Source: chosen; on a busy
# machine one that was stored four times in a row outran three.
_ATTEMPTS: Final = 8
_LLM_RERANKER: Final = "builtin:openai"
_NOTHING: Final = Pending(0, 0, 0)


class SearchMode(StrEnum):
    """Which legs a search uses."""

    HYBRID = "hybrid"
    VECTOR = "vector"
    LEXICAL = "lexical"


class Abstained(StrEnum):
    """Why a search answers nothing."""

    NO_MATCH = "no_match"
    BELOW_FLOOR = "below_floor"
    EMPTY_NAMESPACE = "empty_namespace"
    EMBEDDER_CHANGED = "embedder_changed"


@dataclass(frozen=True, slots=True)
class KnowledgeQuery:
    """What to find.

    Attributes:
        text: The query.
        wanted: Which documents are searched.
        top_k: Most hits.
        mode: Which legs run.
        rerank: Reranker, or empty for none.
        is_rerank_named: Whether the request named it itself.
    """

    text: str
    wanted: DocumentFilter = field(default_factory=DocumentFilter)
    top_k: int = 10
    mode: SearchMode = SearchMode.HYBRID
    rerank: str = ""
    is_rerank_named: bool = False


@dataclass(frozen=True, slots=True)
class KnowledgeHit:
    """One section that answers, by its best passage."""

    document: Document
    section: Section
    chunk: StoredChunk
    ranked: Ranked


@dataclass(frozen=True, slots=True)
class KnowledgeResult:
    """What a search found."""

    hits: Sequence[KnowledgeHit] = ()
    candidates: int = 0
    abstained: str = ""
    pending: int = 0
    reranked_by: str = ""
    rerank_failure: str = ""


class _QueryVector:
    """The vector of a query, made once, beside the leg of words."""

    def __init__(self, embedding: EmbeddingPort, served: ServedModel, text: str) -> None:
        self._embedding = embedding
        self._text = text
        self._vector: Sequence[float] | None = None
        self.served = served
        self.space = VectorSpace(served.name, served.dim)

    async def vector(self) -> Sequence[float]:
        """Returns it, float32 [dim], of unit length."""
        if self._vector is None:
            self._vector = await self._embedding.embed_query(self._text)
        return self._vector


class KnowledgeSearch:
    """Searches the documents of a namespace."""

    def __init__(
        self,
        documents: DocumentRepository,
        sections: SectionRepository,
        chunks: ChunkRepository,
        embeddings: KnowledgeEmbeddingRepository,
        embedding: EmbeddingPort,
        thresholds: ThresholdsInForce,
        llm: LlmPort | None,
        *,
        rerank_default: str = "",
        reads_llm_free: bool = False,
    ) -> None:
        self._documents = documents
        self._sections = sections
        self._chunks = chunks
        self._embeddings = embeddings
        self._embedding = embedding
        self._thresholds = thresholds
        self._llm = llm
        self._rerank_default = rerank_default
        self._reads_llm_free = reads_llm_free

    def reranker(self, asked: str | None) -> tuple[str, bool]:
        """Returns the reranker of a request, empty for none, and whether the request named it itself."""
        if asked is not None:
            name = "" if asked == NO_RERANKER else asked
            # Under reads without a language model, the one that is such a model does not run even when named.
            is_llm = name == _LLM_RERANKER or name.startswith(f"{_LLM_RERANKER}:")
            return ("", True) if self._reads_llm_free and is_llm else (name, True)
        return ("", False) if self._reads_llm_free else (self._rerank_default, False)

    async def search(self, scope: Scope, query: KnowledgeQuery) -> KnowledgeResult:
        """Returns what answers the query, best first.

        Raises:
            InvalidArgument: The query is blank, or names a reranker that there is not.
            EmbedTimeout: The query's embedding did not come in its bound; there is no answer by words instead.
            BackendUnavailable: The store or embedding cannot be reached.
        """
        if not query.text.strip():
            raise InvalidArgument.of("query", "must hold text")
        served = None if query.mode is SearchMode.LEXICAL else await self._embedding.served_model()
        asked = None if served is None else _QueryVector(self._embedding, served, query.text)
        (found, matched), pending = await both(self._found(scope, query, asked), self._pending(scope, served))
        shown = [hit for hit in found if hit.ranked.score >= MIN_SHOWN or not hit.ranked.is_low]
        if not shown:
            return KnowledgeResult(abstained=await self._why_nothing(scope, matched, pending), pending=pending.waiting)
        hits, reranked_by, failure = await self._reranked(query, shown)
        return KnowledgeResult(hits[: query.top_k], len(shown), "", pending.waiting, reranked_by, failure)

    async def _found(
        self, scope: Scope, query: KnowledgeQuery, asked: "_QueryVector | None"
    ) -> tuple[list[KnowledgeHit], bool]:
        """Returns the hits in their order, of versions that are shown together, and whether a leg found anything."""
        found: list[KnowledgeHit] = []
        matched = False
        for _ in range(_ATTEMPTS):
            candidates = await self._candidates(scope, query, asked)
            matched = bool(candidates)
            ranked, are_known = await self._ranked(scope, query, None if asked is None else asked.served, candidates)
            found, are_shown = await self._hits(scope, ranked)
            if are_known and are_shown:
                break
        return found, matched

    async def _candidates(self, scope: Scope, query: KnowledgeQuery, asked: "_QueryVector | None") -> list[Candidate]:
        """Returns what the legs found, each passage with what both know of it."""
        pool = max(_POOL, query.top_k * 2)
        lexical, near = await both(self._lexical(scope, query, pool), self._near(scope, query, asked, pool))
        cosines = {hit.place: hit.cosine for hit in near}
        unknown = [hit.place for hit in lexical if hit.place not in cosines]
        if asked is not None and unknown:
            cosines |= await self._embeddings.cosines(scope, asked.space, await asked.vector(), unknown)
        found = {
            hit.place: Candidate(hit.place, hit.section, cosines.get(hit.place), hit.bm25, hit.share, hit.exact)
            for hit in lexical
        }
        for hit in near:
            found.setdefault(hit.place, Candidate(hit.place, hit.section, hit.cosine))
        return list(found.values())

    async def _lexical(self, scope: Scope, query: KnowledgeQuery, pool: int) -> list[LexicalHit]:
        if query.mode is SearchMode.VECTOR:
            return []
        analyzed = analyze_query(query.text)
        return await self._chunks.lexical(scope, query.wanted, analyzed, pool) if analyzed.terms else []

    async def _near(
        self, scope: Scope, query: KnowledgeQuery, asked: "_QueryVector | None", pool: int
    ) -> list[VectorHit]:
        if asked is None:
            return []
        return await self._embeddings.nearest(scope, query.wanted, asked.space, await asked.vector(), pool)

    async def _ranked(
        self, scope: Scope, query: KnowledgeQuery, served: ServedModel | None, candidates: Sequence[Candidate]
    ) -> tuple[list[tuple[Ranked, Section]], bool]:
        """Returns the candidates in their order, each section once, by its best passage, and whether all are there yet.

        A passage whose section is gone is of a version that was replaced since a leg found it.
        """
        if not candidates:
            return [], True
        places = [(each.place.source_uri, each.place.version, each.section) for each in candidates]
        sections = await self._sections.of_places(scope, places)
        known = {
            each.place: sections[place] for each, place in zip(candidates, places, strict=True) if place in sections
        }
        noise_floor = 0.0 if served is None else await self._thresholds.noise_floor(scope, served)
        noisy = {
            place for place, section in known.items() if section.noise and section.noise not in asked_for(query.text)
        }
        ranked = rank([each for each in candidates if each.place in known], noisy, noise_floor=noise_floor)
        best: dict[tuple[str, int, int], tuple[Ranked, Section]] = {}
        for each in ranked:
            candidate = each.candidate
            place = candidate.place.source_uri, candidate.place.version, candidate.section
            best.setdefault(place, (each, known[candidate.place]))
        return list(best.values()), len(known) == len(candidates)

    async def _hits(self, scope: Scope, ranked: Sequence[tuple[Ranked, Section]]) -> tuple[list[KnowledgeHit], bool]:
        """Returns the hits with their texts, and whether none was of a version that is not shown any more."""
        places = [each.candidate.place for each, _ in ranked]
        uris = sorted({place.source_uri for place in places})
        chunks, documents = await both(self._chunks.fetch(scope, places), self._documents.of_uris(scope, uris))
        hits = []
        for each, section in ranked:
            place = each.candidate.place
            document = documents.get(place.source_uri)
            if place in chunks and document is not None and document.version == place.version:
                hits.append(KnowledgeHit(document, section, chunks[place], each))
        return hits, len(hits) == len(ranked)

    async def _pending(self, scope: Scope, served: ServedModel | None) -> Pending:
        if served is None:
            return _NOTHING
        return await self._embeddings.pending(scope, VectorSpace(served.name, served.dim))

    async def _why_nothing(self, scope: Scope, matched: bool, pending: Pending) -> str:
        if matched:
            return Abstained.BELOW_FLOOR
        if not await self._documents.any(scope):
            return Abstained.EMPTY_NAMESPACE
        return Abstained.EMBEDDER_CHANGED if pending.is_all_of_another_model else Abstained.NO_MATCH

    async def _reranked(
        self, query: KnowledgeQuery, hits: Sequence[KnowledgeHit]
    ) -> tuple[list[KnowledgeHit], str, str]:
        """Puts the best hits into a reranker's order; where it fails, theirs stays and the answer says so."""
        if not query.rerank or self._llm is None or len(hits) < 2:
            return list(hits), "", ""
        head, tail = hits[:_RERANKED], hits[_RERANKED:]
        texts = [f"{hit.section.breadcrumb}\n{hit.chunk.text}" for hit in head]
        try:
            scores = await self._llm.rerank(query.text, texts, endpoint=query.rerank, named=query.is_rerank_named)
        except InvalidArgument:
            if query.is_rerank_named:
                raise
            return list(hits), "", "INVALID_ARGUMENT"
        except LoomError as error:
            logger.warning("documents_not_reranked", extra={"reason": error.reason.value})
            return list(hits), "", error.reason.value
        scored = {
            hit.ranked.candidate.place: replace(hit, ranked=replace(hit.ranked, rerank_score=value))
            for hit, value in zip(head, scores, strict=True)
        }
        order = reranked([hit.ranked for hit in scored.values()])
        return [*(scored[each.candidate.place] for each in order), *tail], query.rerank, ""
