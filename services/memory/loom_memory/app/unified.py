"""Searching everything that a caller may read: the memory leg over several namespaces."""

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from loom_common.auth.directory import Directory
from loom_common.call import Scope
from loom_common.errors import InvalidArgument, LoomError, Reason
from loom_common.together import all_of
from loom_memory.app.search import BELOW_FLOOR, EMBEDDER_CHANGED, EMPTY_NAMESPACE, NO_MATCH, SearchQuery
from loom_memory.domain.findings import added_facets
from loom_memory.domain.memory import Hit, Kept, SearchResult

logger = logging.getLogger(__name__)

# The code that says most, where namespaces had different reasons for having no hits.
_ABSTAIN_ORDER: Final = (EMBEDDER_CHANGED, BELOW_FLOOR, NO_MATCH, EMPTY_NAMESPACE)


class NamespaceScope(StrEnum):
    """Which namespaces a search reads."""

    ALL_MINE = "all_mine"
    THIS = "this"


@dataclass(frozen=True, slots=True)
class FanOut:
    """Bounds of a search over several namespaces: their kinds, and how many beside the addressed one."""

    kinds: tuple[str, ...]
    max_namespaces: int


@dataclass(frozen=True, slots=True)
class MemorySection:
    """What memories answer; `error` is the reason why they could not be read, empty when they could."""

    result: SearchResult
    error: str = ""


class NamespaceSearch(Protocol):
    """Searches the memories of one namespace."""

    async def search(self, scope: Scope, query: SearchQuery) -> SearchResult:
        """Returns what answers the query, best first."""
        ...


class UnifiedSearch:
    """Answers `search.query`."""

    def __init__(self, memories: NamespaceSearch, directory: Directory, fan_out: FanOut) -> None:
        self._memories = memories
        self._directory = directory
        self._fan_out = fan_out

    async def search(self, scope: Scope, query: SearchQuery, reach: NamespaceScope) -> MemorySection:
        """Returns what memories answer, the addressed namespace first where hits are equal.

        A failing leg is an error of its section, so that the sections beside it still answer.

        Raises:
            InvalidArgument: The query is blank.
        """
        try:
            return MemorySection(await self.result(scope, query, reach))
        except InvalidArgument:
            raise
        except LoomError as error:
            if error.reason is Reason.INTERNAL:
                logger.exception("search_leg_failed", extra={"leg": "memory"})
            return MemorySection(SearchResult(), error.reason.value)

    async def result(self, scope: Scope, query: SearchQuery, reach: NamespaceScope) -> SearchResult:
        """Returns the same and raises what failed.

        Raises:
            LoomError: A namespace could not be searched.
        """
        if reach is NamespaceScope.THIS:
            return await self._memories.search(scope, query)
        scopes = [scope, *await self._others(scope)]
        return _merged(await all_of(self._memories.search(each, query) for each in scopes), query.top_k)

    async def _others(self, scope: Scope) -> list[Scope]:
        """Returns the caller's other namespaces; none where they are not known: no search widens on a guess."""
        try:
            infos = await self._directory.caller_namespaces(self._fan_out.kinds, self._fan_out.max_namespaces + 1)
        except LoomError:
            logger.warning("fan_out_unresolved", extra={"namespace": scope.namespace})
            return []
        named = [Scope(info.org, info.name) for info in infos]
        others = [each for each in named if each.org == scope.org and each != scope]
        return others[: self._fan_out.max_namespaces]


def _merged(results: Sequence[SearchResult], top_k: int) -> SearchResult:
    """Merges by score, without changing the order that any namespace gave its hits."""
    queues = [deque[Hit | Kept]([*result.hits, *result.kept]) for result in results]
    hits: list[Hit] = []
    kept: list[Kept] = []
    while any(queues):
        # What is plainly low comes after everything that is not, wherever it was found.
        best = min(
            (place for place, queue in enumerate(queues) if queue),
            key=lambda place: (queues[place][0].low, -queues[place][0].score, place),
        )
        found = queues[best].popleft()
        if isinstance(found, Kept):
            kept.append(found)
        elif len(hits) < top_k:
            hits.append(found)
        else:
            kept.append(
                Kept(found.memory.scope.namespace, found.memory.identity, found.score, found.similarity, found.low)
            )
    codes = {result.abstain_code for result in results}
    code = "" if hits else next((code for code in _ABSTAIN_ORDER if code in codes), NO_MATCH)
    return SearchResult(
        hits=hits,
        candidates_total=sum(result.candidates_total for result in results),
        abstain_code=code,
        pending=sum(result.pending for result in results),
        kept=tuple(kept),
        withheld=sum(result.withheld for result in results),
        facets=added_facets(result.facets for result in results),
        # Of the namespace that was addressed: how the others were searched differs by what they hold alone.
        explanation=results[0].explanation,
    )
