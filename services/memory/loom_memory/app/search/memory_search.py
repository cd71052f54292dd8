"""Finding memories: the legs of a search, fused into one order."""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from loom_common.call import Scope
from loom_common.errors import InvalidArgument, LoomError
from loom_common.together import both
from loom_memory.app.pending import PendingVectors
from loom_memory.app.search.abstention import BELOW_FLOOR, EMBEDDER_CHANGED, EMPTY_NAMESPACE, NO_MATCH
from loom_memory.app.search.beginning import Beginning
from loom_memory.app.search.legwork import Legwork, Looked
from loom_memory.app.search.placing import Placed
from loom_memory.app.search.query import SearchQuery
from loom_memory.app.search.reranking import MAX_RERANKED, Reranking
from loom_memory.app.search.run import SearchRun
from loom_memory.app.search.wordings import Worded, Wordings
from loom_memory.domain import scoring
from loom_memory.domain.findings import Explanation, Facet, HelperNote, facets_of
from loom_memory.domain.memory import Filter, Hit, Identity, Kept, Memory, SearchResult
from loom_memory.domain.newer_first import newer_first
from loom_memory.domain.vectors import VectorSpace

logger = logging.getLogger(__name__)

MAX_KEPT: Final = 1_000
"""Most matches behind the hits that an answer can be continued by. Source: chosen; ten times the longest page."""


class MemorySearch:
    """Searches one namespace.

    A memory that is written while a search runs may be ranked by the text it had; one written before is ranked by
    the text it has, and one deleted before is never found. No order depends on a model of language unless the request
    asks for one, or the namespace has a reranker of its own.
    """

    def __init__(
        self,
        beginning: Beginning,
        legwork: Legwork,
        wordings: Wordings,
        reranking: Reranking,
        pending: PendingVectors,
    ) -> None:
        self._beginning = beginning
        self._legwork = legwork
        self._wordings = wordings
        self._reranking = reranking
        self._pending = pending

    async def search(self, scope: Scope, query: SearchQuery) -> SearchResult:
        """Returns what answers the query, best first.

        Raises:
            InvalidArgument: The query is blank, or names a reranker that there is not.
            EmbedTimeout: The query's embedding did not come in its bound; there is no lexical answer instead.
            BackendUnavailable: The store or embedding cannot be reached.
        """
        if not query.text.strip():
            raise InvalidArgument.of("query", "must hold text")
        run = await self._beginning.of(scope, query)
        looked, pending = await both(self._legwork.look(run), self._count_pending(run))
        worded = await self._wordings.added(run, looked)
        if not worded.placed:
            explanation = _explanation(run, looked, worded) if query.explain else None
            return SearchResult(abstain_code=await self._why_nothing(run), pending=pending, explanation=explanation)
        shown = [hit for hit in worded.placed if hit.is_shown]
        best = max((hit.score for hit in shown), default=0.0) if query.quality_filter else 0.0
        wanted = [
            hit
            for hit in shown
            if hit.score >= query.min_score and (not query.quality_filter or scoring.is_good(hit.score, best))
        ]
        ordered, memories, note = await self._read(run, wanted, looked.best_cosine)
        shown_now = ordered[: query.top_k]
        hits = newer_first([_hit(hit, memories[hit.identity]) for hit in shown_now if hit.identity in memories])
        facets: tuple[Facet, ...] = ()
        if query.facets:
            identities = [hit.identity for hit in wanted]
            facets = facets_of(await run.legs.traits(scope, query.wanted, run.now, identities))
        return SearchResult(
            hits=hits,
            candidates_total=len(wanted),
            abstain_code="" if hits else BELOW_FLOOR,
            pending=pending,
            kept=tuple(_kept(scope, hit) for hit in ordered[query.top_k : query.top_k + MAX_KEPT]),
            withheld=len(shown) - len(wanted),
            facets=facets,
            explanation=_explanation(run, looked, worded, note) if query.explain else None,
        )

    async def _read(
        self, run: SearchRun, wanted: Sequence[Placed], best_cosine: float
    ) -> tuple[Sequence[Placed], Mapping[Identity, Memory], HelperNote | None]:
        """Returns the hits in their last order with the rows of the first; what was deleted meanwhile has none."""
        endpoint, note = await self._reranking.endpoint(run, best_cosine)
        most = max(run.query.top_k, MAX_RERANKED) if endpoint else run.query.top_k
        identities = [hit.identity for hit in wanted[:most]]
        memories = await run.rows.fetch(run.scope, run.query.wanted, identities, run.now)
        if not endpoint:
            return wanted, memories, note
        ordered, note = await self._reranking.reranked(run, endpoint, wanted, memories)
        return ordered, memories, note

    async def _count_pending(self, run: SearchRun) -> int:
        if run.served is None or run.is_past:
            return 0
        space = VectorSpace(run.served.name, run.served.dim)
        try:
            return await self._pending.count(run.scope, run.query.wanted, space)
        except LoomError:
            # It only says more about an answer, which must not be lost for it.
            logger.warning("pending_vectors_not_counted", extra={"namespace": run.scope.namespace})
            return 0

    async def _why_nothing(self, run: SearchRun) -> str:
        rows, wanted = run.statistics.rows, run.query.wanted
        if rows == 0 or wanted != Filter():
            rows = (await run.rows.statistics(run.scope, Filter(), run.now)).rows
        if not rows:
            return EMPTY_NAMESPACE
        space = None if run.served is None else VectorSpace(run.served.name, run.served.dim)
        if space is not None and await self._pending.is_all_of_another_model(run.scope, wanted, space):
            return EMBEDDER_CHANGED
        return NO_MATCH


def _hit(placed: Placed, memory: Memory) -> Hit:
    return Hit(memory, placed.score, placed.cosine, placed.is_low, placed.components)


def _kept(scope: Scope, placed: Placed) -> Kept:
    return Kept(scope.namespace, placed.identity, placed.score, placed.cosine, placed.is_low)


def _explanation(run: SearchRun, looked: Looked, worded: Worded, note: HelperNote | None = None) -> Explanation:
    return Explanation(
        recipe=run.query.recipe.value,
        intent=run.intent.value,
        legs=looked.counts,
        times=tuple(phrase.span for phrase in run.times),
        wordings=worded.wordings,
        helpers=worded.notes if note is None else (*worded.notes, note),
        thresholds=run.thresholds.tier.value if run.thresholds else "",
        noise_floor=run.noise_floor,
        unsearched=run.unsearched,
    )
