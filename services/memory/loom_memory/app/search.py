"""Finding memories: the legs of a search, fused into one order."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeVar

from loom_common.call import Scope
from loom_common.clock import Clock
from loom_common.errors import InvalidArgument, LoomError
from loom_memory.app.embedding import EmbeddingPort, ServedModel
from loom_memory.app.statistics import StatisticsCache
from loom_memory.app.write_versions import WriteVersions
from loom_memory.domain import ranking, scoring
from loom_memory.domain.analyzer import analyze_query
from loom_memory.domain.memory import Filter, Hit, Identity, Memory, SearchResult, Sketch
from loom_memory.domain.query_cues import QueryCues, read_cues
from loom_memory.domain.ranking import Candidate, Ranked
from loom_memory.store.embeddings import EmbeddingRepository, QueryVector, VectorHit
from loom_memory.store.memories import LexicalHit, MemoryRepository, Statistics

A = TypeVar("A")
B = TypeVar("B")

NO_MATCH: Final = "no_match"
BELOW_FLOOR: Final = "below_floor"
EMPTY_NAMESPACE: Final = "empty_namespace"

# Source: chosen. Lower scores are noise to a reader; what lies between this and `scoring.MATCH` is shown as low.
_MIN_SHOWN: Final = 0.1

# A long memory comes with several chunks, and superseded or deleted rows come too.
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
    """What the legs know of one memory."""

    sketch: Sketch
    cosine: float | None = None
    lexical: LexicalHit | None = None
    position: int | None = None


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
        return sum(known.cosine is not None for known in evidence.values()) < self.pool // 2


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
        *,
        statistics: StatisticsCache,
        numbers: WriteVersions,
        clock: Clock,
    ) -> None:
        self._memories = memories
        self._embeddings = embeddings
        self._embedding = embedding
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
        lexical, (vector, near) = await _both(self._lexical(search), self._vector(search, served))
        evidence = await self._evidence(search, lexical, near)
        if vector is not None and search.may_lack(near, evidence):
            evidence = await self._evidence(search, lexical, await self._nearest_live(search, vector))
        if not evidence:
            return SearchResult(abstain_code=await self._why_nothing(search))
        await self._complete(search, vector, evidence)
        ranked = ranking.rank(
            [_candidate(known) for known in evidence.values()],
            search.cues,
            noise_floor=0.0 if served is None else served.noise_floor,
        )
        shown = [hit for hit in ranked if hit.score >= _MIN_SHOWN or not hit.is_low]
        hits = await self._hits(search, shown[: query.top_k])
        return SearchResult(hits, len(shown), "" if hits else BELOW_FLOOR)

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

    async def _nearest_live(self, search: _Search, vector: QueryVector) -> list[VectorHit]:
        return await self._embeddings.nearest_live(search.scope, search.query.wanted, search.now, vector, search.pool)

    async def _evidence(
        self, search: _Search, lexical: Sequence[LexicalHit], near: Sequence[VectorHit]
    ) -> dict[Identity, _Evidence]:
        """Returns what is known of each memory that is shown now; leg hits of other versions do not count."""
        nearest = list(dict.fromkeys(hit.identity for hit in near))[: search.pool + _SCAN_EXTRA]
        wanted = dict.fromkeys([*(hit.identity for hit in lexical), *nearest])
        found = await self._memories.sketches(search.scope, search.query.wanted, list(wanted), search.now)
        evidence = {identity: _Evidence(sketch) for identity, sketch in found.items()}
        for hit in lexical:
            known = evidence.get(hit.identity)
            if known is not None and _is_of(hit.version, known.sketch, search.settled):
                known.lexical = hit
        for chunk in near:
            known = evidence.get(chunk.identity)
            if known is not None and _is_of(chunk.version, known.sketch, search.settled):
                known.cosine = chunk.cosine if known.cosine is None else max(known.cosine, chunk.cosine)
        return {
            identity: known
            for identity, known in evidence.items()
            if known.lexical is not None or known.cosine is not None
        }

    async def _complete(self, search: _Search, vector: QueryVector | None, evidence: dict[Identity, _Evidence]) -> None:
        """Adds the rows around the best short turns, and every cosine that a leg did not reach.

        So that all are ranked and scored alike.
        """
        positions = await self._positions(search, evidence)
        neighbours = [identity for identity in positions if identity not in evidence]
        unknown = [] if vector is None else [each for each, known in evidence.items() if known.cosine is None]
        sketches, cosines = await _both(
            self._memories.sketches(search.scope, search.query.wanted, neighbours, search.now),
            self._cosines(search, vector, unknown + neighbours),
        )
        for identity, sketch in sketches.items():
            evidence[identity] = _Evidence(sketch)
        for identity, known in evidence.items():
            known.position = positions.get(identity)
            if known.cosine is None:
                known.cosine = cosines.get((identity, known.sketch.version))

    async def _positions(self, search: _Search, evidence: Mapping[Identity, _Evidence]) -> dict[Identity, int]:
        """Returns the places in their session of the best short turns and of the rows around them."""
        if not any(identity.session_id for identity in evidence):
            return {}
        seeds = ranking.seeds([_candidate(known) for known in evidence.values()], search.cues)
        around = await self._memories.neighbours(
            search.scope, search.query.wanted, search.now, [Identity(*seed.key) for seed in seeds]
        )
        return {neighbour.identity: neighbour.position for neighbour in around}

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

    async def _why_nothing(self, search: _Search) -> str:
        rows = search.statistics.rows
        if rows == 0 or search.query.wanted != Filter():
            rows = (await self._memories.statistics(search.scope, Filter(), search.now)).rows
        return NO_MATCH if rows else EMPTY_NAMESPACE


async def _both(one: Coroutine[None, None, A], other: Coroutine[None, None, B]) -> tuple[A, B]:
    """Runs two reads side by side; when one fails the other is cancelled, and its error is the search's."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = group.create_task(one), group.create_task(other)
    except* LoomError as errors:
        raise errors.exceptions[0] from None
    return tasks[0].result(), tasks[1].result()


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
