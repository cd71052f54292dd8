"""Searching the memories of several namespaces at once."""

from collections.abc import Sequence
from typing import Final, Protocol

from loom_common.call import Scope
from loom_common.together import all_of
from loom_memory.app.search.abstention import BELOW_FLOOR, EMBEDDER_CHANGED, EMPTY_NAMESPACE, NO_MATCH
from loom_memory.app.search.namespaces import CallerNamespaces, NamespaceScope
from loom_memory.app.search.query import SearchQuery
from loom_memory.domain.findings import added_facets
from loom_memory.domain.interleaving import interleaved
from loom_memory.domain.memory import Hit, Kept, SearchResult, kept_of

# The code that says most, where namespaces had different reasons for having no hits.
_ABSTAIN_ORDER: Final = (EMBEDDER_CHANGED, BELOW_FLOOR, NO_MATCH, EMPTY_NAMESPACE)


class NamespaceSearch(Protocol):
    """Searches the memories of one namespace."""

    async def search(self, scope: Scope, query: SearchQuery) -> SearchResult:
        """Returns what answers the query, best first."""
        ...


class SeveralSearch:
    """Answers `memory.search` over one namespace or several."""

    def __init__(self, memories: NamespaceSearch, namespaces: CallerNamespaces) -> None:
        self._memories = memories
        self._namespaces = namespaces

    async def search(self, scope: Scope, query: SearchQuery, reach: NamespaceScope) -> SearchResult:
        """Returns what memories answer, the addressed namespace first where hits are equal.

        Raises:
            LoomError: A namespace could not be searched.
        """
        if reach is NamespaceScope.THIS:
            return await self._memories.search(scope, query)
        read = await self._namespaces.read_by(scope, reach)
        return merged(await all_of(self._memories.search(each, query) for each in read.all), query.top_k)


def merged(results: Sequence[SearchResult], top_k: int) -> SearchResult:
    """Merges by score, without changing the order that any namespace gave its hits."""
    found = in_one_order(results)
    hits = [each for each in found if isinstance(each, Hit)]
    shown = hits[:top_k]
    behind = {id(hit) for hit in hits[top_k:]}
    kept = [each if isinstance(each, Kept) else kept_of(each) for each in found if not _is_shown(each, behind)]
    return SearchResult(
        hits=shown,
        candidates_total=sum(result.candidates_total for result in results),
        abstain_code=abstained(results, has_hits=bool(shown)),
        pending=sum(result.pending for result in results),
        kept=tuple(kept),
        withheld=sum(result.withheld for result in results),
        facets=added_facets(result.facets for result in results),
        # Of the namespace that was addressed: how the others were searched differs by what they hold alone.
        explanation=results[0].explanation,
    )


def in_one_order(results: Sequence[SearchResult]) -> list[Hit | Kept]:
    """Returns hits of several namespaces and the matches kept behind them, best first, the earlier's where equal.

    Each namespace's keep their own order. What is plainly low comes after everything that is not.
    """
    lists: list[list[Hit | Kept]] = [[*result.hits, *result.kept] for result in results]
    return interleaved(lists, lambda each: (each.low, -each.score))


def abstained(results: Sequence[SearchResult], *, has_hits: bool) -> str:
    """Returns why several namespaces have no hits: the reason that says most; empty where there are some."""
    codes = {result.abstain_code for result in results}
    return "" if has_hits else next((code for code in _ABSTAIN_ORDER if code in codes), NO_MATCH)


def _is_shown(each: Hit | Kept, behind: set[int]) -> bool:
    return isinstance(each, Hit) and id(each) not in behind
