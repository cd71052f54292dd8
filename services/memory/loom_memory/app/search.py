"""Finding memories: the legs of a search, fused into one order."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from loom_common.call import Scope
from loom_common.clock import Clock
from loom_common.errors import InvalidArgument, LoomError
from loom_common.together import both
from loom_memory.app.embedding import EmbeddingPort, ServedModel
from loom_memory.app.pending import PendingVectors
from loom_memory.app.statistics import StatisticsCache
from loom_memory.app.thresholds import ThresholdsInForce
from loom_memory.app.write_versions import WriteVersions
from loom_memory.domain import ranking, scoring
from loom_memory.domain.analyzer import analyze_query
from loom_memory.domain.memory import Filter, Hit, Identity, Memory, SearchResult, Sketch
from loom_memory.domain.query_cues import QueryCues, read_cues
from loom_memory.domain.ranking import Candidate, Found, Ranked
from loom_memory.domain.vectors import VectorSpace
from loom_memory.store.embeddings import EmbeddingRepository, QueryVector, VectorHit
from loom_memory.store.memories import LexicalHit, MemoryRepository, Neighbour, Statistics

logger = logging.getLogger(__name__)

NO_MATCH: Final = "no_match"
BELOW_FLOOR: Final = "below_floor"
EMPTY_NAMESPACE: Final = "empty_namespace"
EMBEDDER_CHANGED: Final = "embedder_changed"

# Source: chosen. Lower scores are noise to a reader; what lies between this and `scoring.MATCH` is shown as low.
_MIN_SHOWN: Final = 0.1

# A memory comes with several rows where it is long or its key says something, and superseded or deleted ones come too.
_SCAN_FACTOR: Final = 2
_SCAN_EXTRA: Final = 20


class SearchMode(StrEnum):
    """Which legs a search uses."""

    HYBRID = "hybrid"
    VECTOR = "vector"
    LEXICAL = "lexical"


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """What to find: `text`, among what `wanted` keeps, at most `top_k` of it."""

    text: str
    wanted: Filter
    top_k: int
    mode: SearchMode = SearchMode.HYBRID


@dataclass(slots=True)
class _Evidence:
    """What is known of one memory; `is_near` says whether the vector leg found it as it is now."""

    sketch: Sketch
    cosine: float | None = None
    lexical: LexicalHit | None = None
    position: int | None = None
    is_near: bool = False

    @property
    def is_found(self) -> bool:
        """Whether a leg found it as it is now."""
        return self.is_near or self.lexical is not None


class _Legs:
    """What the legs found, of whatever version."""

    def __init__(self, lexical: Sequence[LexicalHit], near: Sequence[VectorHit]) -> None:
        self._lexical = {hit.identity: hit for hit in lexical}
        self._near: dict[Identity, list[VectorHit]] = {}
        for chunk in near:
            self._near.setdefault(chunk.identity, []).append(chunk)

    def identities(self, most_near: int) -> list[Identity]:
        """Returns all of the lexical leg and the nearest `most_near` of the other."""
        return list(dict.fromkeys([*self._lexical, *list(self._near)[:most_near]]))

    def found(self) -> list[Found]:
        """Returns what the seeds are chosen by."""
        return [
            Found(
                key=identity,
                cosine=max((hit.cosine for hit in self._near.get(identity, ())), default=None),
                share=self._lexical[identity].share if identity in self._lexical else 0.0,
                has_session=bool(identity.session_id),
            )
            for identity in dict.fromkeys([*self._lexical, *self._near])
        ]

    def without_cosine(self, around: Sequence[Neighbour]) -> list[Identity]:
        """Returns those of the lexical leg and of `around` whose version the vector leg did not find."""
        near = {(hit.identity, hit.version) for hits in self._near.values() for hit in hits}
        versions = [(hit.identity, hit.version) for hit in self._lexical.values()]
        versions += [(neighbour.identity, neighbour.version) for neighbour in around]
        return list(dict.fromkeys(version[0] for version in versions if version not in near))

    def evidence(self, sketch: Sketch, settled: int) -> _Evidence:
        """Returns what the legs know of a row as it is now; hits of its other versions do not count."""
        known = _Evidence(sketch)
        lexical = self._lexical.get(sketch.identity)
        if lexical is not None and _is_of(lexical.version, sketch, settled):
            known.lexical = lexical
        cosines = [hit.cosine for hit in self._near.get(sketch.identity, ()) if _is_of(hit.version, sketch, settled)]
        known.cosine = max(cosines, default=None)
        known.is_near = known.cosine is not None
        return known


@dataclass(frozen=True, slots=True)
class _Search:
    """One search under way; versions up to `settled` were stored before it began."""

    scope: Scope
    query: SearchQuery
    cues: QueryCues
    statistics: Statistics
    now: datetime
    settled: int
    pool: int

    @property
    def scan_limit(self) -> int:
        """Chunks that a plain scan returns."""
        return self.pool * _SCAN_FACTOR + _SCAN_EXTRA

    def may_lack(self, near: Sequence[VectorHit], evidence: Mapping[Identity, "_Evidence"]) -> bool:
        """Says whether a plain scan was filled so much with what is not shown that hits may lie behind it."""
        if len(near) < self.scan_limit or self.query.wanted.is_beyond_identity:
            return False
        return sum(known.is_near for known in evidence.values()) < max(self.pool // 2, self.query.top_k)


class MemorySearch:
    """Searches one namespace.

    A memory that is written while a search runs may be ranked by the text it had; one written before is ranked by
    the text it has, and one deleted before is never found.
    """

    def __init__(
        self,
        memories: MemoryRepository,
        embeddings: EmbeddingRepository,
        embedding: EmbeddingPort,
        thresholds: ThresholdsInForce,
        *,
        statistics: StatisticsCache,
        pending: PendingVectors,
        numbers: WriteVersions,
        clock: Clock,
    ) -> None:
        self._memories = memories
        self._embeddings = embeddings
        self._embedding = embedding
        self._pending = pending
        self._thresholds = thresholds
        self._statistics = statistics
        self._numbers = numbers
        self._clock = clock

    async def search(self, scope: Scope, query: SearchQuery) -> SearchResult:
        """Returns what answers the query, best first.

        Raises:
            InvalidArgument: The query is blank.
            EmbedTimeout: The query's embedding did not come in its bound; there is no lexical answer instead.
            BackendUnavailable: The store or embedding cannot be reached.
        """
        if not query.text.strip():
            raise InvalidArgument.of("query", "must hold text")
        settled, now = self._numbers.settled, self._clock.now()
        # Words alone are found while embedding is away.
        served = None if query.mode is SearchMode.LEXICAL else await self._embedding.served_model()
        statistics = await self._statistics.get(scope, query.wanted)
        search = _Search(
            scope=scope,
            query=query,
            cues=read_cues(query.text, statistics.speakers),
            statistics=statistics,
            now=now,
            settled=settled,
            pool=max(ranking.POOL_SIZE, query.top_k),
        )
        (lexical, (vector, near)), pending = await both(
            both(self._lexical(search), self._vector(search, served)), self._count_pending(search, served)
        )
        evidence = await self._evidence(search, vector, _Legs(lexical, near))
        if vector is not None and search.may_lack(near, evidence):
            near = await self._nearest_live(search, vector)
            evidence = await self._evidence(search, vector, _Legs(lexical, near))
        if not evidence:
            return SearchResult(abstain_code=await self._why_nothing(search, served), pending=pending)
        ranked = ranking.rank(
            [_candidate(known) for known in evidence.values()],
            search.cues,
            noise_floor=0.0 if served is None else await self._thresholds.noise_floor(scope, served),
        )
        shown = [hit for hit in ranked if hit.score >= _MIN_SHOWN or not hit.is_low]
        hits = await self._hits(search, shown[: query.top_k])
        return SearchResult(hits, len(shown), "" if hits else BELOW_FLOOR, pending)

    async def _lexical(self, search: _Search) -> list[LexicalHit]:
        if search.query.mode is SearchMode.VECTOR:
            return []
        analyzed = analyze_query(search.cues.text)
        if not analyzed.terms:
            return []
        return await self._memories.lexical(
            search.scope, search.query.wanted, search.now, analyzed, search.statistics, search.pool
        )

    async def _vector(self, search: _Search, served: ServedModel | None) -> tuple[QueryVector | None, list[VectorHit]]:
        if served is None:
            return None, []
        vector = QueryVector(served.name, await self._embedding.embed_query(search.cues.text))
        if search.query.wanted.is_beyond_identity:
            return vector, await self._nearest_live(search, vector)
        near = await self._embeddings.nearest(search.scope, search.query.wanted, vector, search.scan_limit)
        return vector, near

    async def _count_pending(self, search: _Search, served: ServedModel | None) -> int:
        if served is None:
            return 0
        try:
            return await self._pending.count(search.scope, search.query.wanted, VectorSpace(served.name, served.dim))
        except LoomError:
            # It only says more about an answer, which must not be lost for it.
            logger.warning("pending_vectors_not_counted", extra={"namespace": search.scope.namespace})
            return 0

    async def _nearest_live(self, search: _Search, vector: QueryVector) -> list[VectorHit]:
        return await self._embeddings.nearest_live(search.scope, search.query.wanted, search.now, vector, search.pool)

    async def _evidence(self, search: _Search, vector: QueryVector | None, legs: "_Legs") -> dict[Identity, _Evidence]:
        """Returns what is known of each memory that is shown now and that a leg found, and of the rows around the best.

        Every cosine that a leg did not reach is read as well, so that all are ranked and scored alike.
        """
        around = await self._around(search, legs)
        found = legs.identities(search.pool + _SCAN_EXTRA)
        wanted = list(dict.fromkeys([*found, *(neighbour.identity for neighbour in around)]))
        unknown = [] if vector is None else legs.without_cosine(around)
        sketches, cosines = await both(
            self._memories.sketches(search.scope, search.query.wanted, wanted, search.now),
            self._cosines(search, vector, unknown),
        )
        positions = {neighbour.identity: neighbour.position for neighbour in around}
        evidence: dict[Identity, _Evidence] = {}
        for identity, sketch in sketches.items():
            known = legs.evidence(sketch, search.settled)
            if known.is_found or identity in positions:
                known.position = positions.get(identity)
                if known.cosine is None:
                    known.cosine = cosines.get((identity, sketch.version))
                evidence[identity] = known
        return evidence if any(known.is_found for known in evidence.values()) else {}

    async def _around(self, search: _Search, legs: "_Legs") -> list[Neighbour]:
        """Returns the best rows of the legs that stand in a session, and the rows around them there."""
        seeds = [Identity(*key) for key in ranking.seeds(legs.found())]
        return await self._memories.neighbours(search.scope, search.query.wanted, search.now, seeds, search.statistics)

    async def _cosines(
        self, search: _Search, vector: QueryVector | None, identities: Sequence[Identity]
    ) -> dict[tuple[Identity, int], float]:
        if vector is None:
            return {}
        return await self._embeddings.cosines(search.scope, vector, identities)

    async def _hits(self, search: _Search, ranked: Sequence[Ranked]) -> list[Hit]:
        """Returns the hits with their whole rows; what was deleted since it was ranked is left out."""
        identities = [Identity(*each.candidate.key) for each in ranked]
        found = await self._memories.fetch(search.scope, search.query.wanted, identities, search.now)
        return [
            _hit(each, found[identity]) for each, identity in zip(ranked, identities, strict=True) if identity in found
        ]

    async def _why_nothing(self, search: _Search, served: ServedModel | None) -> str:
        rows, wanted = search.statistics.rows, search.query.wanted
        if rows == 0 or wanted != Filter():
            rows = (await self._memories.statistics(search.scope, Filter(), search.now)).rows
        if not rows:
            return EMPTY_NAMESPACE
        space = None if served is None else VectorSpace(served.name, served.dim)
        if space is not None and await self._pending.is_all_of_another_model(search.scope, wanted, space):
            return EMBEDDER_CHANGED
        return NO_MATCH


def _is_of(version: int, sketch: Sketch, settled: int) -> bool:
    """Says whether a leg's finding counts for the row as it is now: the same version, or one replaced meanwhile."""
    return version == sketch.version or version < sketch.version > settled


def _candidate(known: _Evidence) -> Candidate:
    sketch, lexical = known.sketch, known.lexical
    identity = sketch.identity
    return Candidate(
        key=identity,
        cosine=known.cosine,
        bm25=lexical.bm25 if lexical else 0.0,
        share=lexical.share if lexical else 0.0,
        exact=lexical is not None and lexical.exact,
        speaker=sketch.speaker,
        session=(identity.user_id, identity.session_id) if identity.session_id else (),
        position=known.position,
        at=sketch.at,
        chars=sketch.chars,
        text=sketch.text,
    )


def _hit(ranked: Ranked, memory: Memory) -> Hit:
    is_low = ranked.score < scoring.MATCH and not ranked.candidate.exact
    return Hit(memory, ranked.score, ranked.candidate.cosine, is_low)
