"""Asks earlier searches again, another way, and compares what they find."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Protocol

import regex

from loom_common.attribution import Attribution, Kind
from loom_common.call import Scope
from loom_common.clock import Clock
from loom_common.errors import InvalidArgument, LoomError
from loom_common.model_calls.jobs import for_attribution
from loom_memory.app.embedding import EmbeddingPort
from loom_memory.app.search.query import SearchMode, SearchQuery
from loom_memory.domain.memory import Identity, SearchResult
from loom_memory.domain.rank_changes import Difference, Sums, difference
from loom_memory.domain.recipes import Recipe, Weights
from loom_memory.store.search_traces import Place, SearchTrace, SearchTraceRepository

OP: Final = "memory.replay"

_PAGE: Final = 200
_PREFIX: Final = regex.compile(r"prefix:(\d{1,5}):(.+)")


class Search(Protocol):
    """Searches one namespace."""

    async def search(self, scope: Scope, query: SearchQuery) -> SearchResult:
        """Returns what answers the query, best first."""
        ...


@dataclass(frozen=True, slots=True)
class Way:
    """One way to ask a search again; what is None or empty stays as it was asked.

    Attributes:
        as_of: Moment that is asked about.
        as_asked: Whether that is the moment of each search.
        embedder: `prefix:<width>:<model>` for the first numbers of the served model's vectors.
        weights: Weights in place of the recipe's; those of the recipe where it is asked for.
    """

    recipe: Recipe | None = None
    mode: SearchMode | None = None
    as_of: datetime | None = None
    as_asked: bool = False
    embedder: str = ""
    weights: Callable[[Recipe], Weights] | None = None


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """Which searches are asked again, and how.

    Attributes:
        as_recorded: Whether the hits before are those that were found at the time.
    """

    org: str
    namespace: str
    days: int
    limit: int
    top_k: int
    before: Way
    after: Way
    as_recorded: bool = False


@dataclass(frozen=True, slots=True)
class Replayed:
    """One search that was asked again, or why it could not be."""

    trace: SearchTrace
    found: Difference
    error: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a replay is; `replayed` is the search that was asked last, and None at first and at the end."""

    total: int
    done: int
    replayed: Replayed | None = None
    sums: Sums | None = None


class Replaying:
    """Asks searches again. None of it is taken down, and none of it counts as recalled.

    Args:
        traces: Searches as they were asked.
        search: Searches as callers do.
        narrowed: Returns what searches by the first so many numbers of the vectors.
        embedding: Knows the served model.
        clock: Time.
    """

    def __init__(
        self,
        traces: SearchTraceRepository,
        search: Search,
        narrowed: Callable[[int], Search],
        embedding: EmbeddingPort,
        clock: Clock,
    ) -> None:
        self._traces = traces
        self._search = search
        self._narrowed = narrowed
        self._embedding = embedding
        self._clock = clock

    async def replay(self, plan: ReplayPlan, asked: Callable[[SearchTrace], SearchQuery]) -> AsyncIterator[Progress]:
        """Yields how many searches there are, then each, then the sums.

        Args:
            plan: What is asked again.
            asked: Reads how a search was asked.

        Raises:
            InvalidArgument: An embedder cannot be seen through the served one.
            BackendUnavailable: The store cannot be reached.
        """
        before, after = await self._searching(plan.before), await self._searching(plan.after)
        now = self._clock.now()
        since = now - timedelta(days=plan.days)
        traces = await self._distinct(plan, since, now)
        sums = Sums()
        yield Progress(len(traces), 0)
        for done, trace in enumerate(traces, 1):
            replayed = await self._replay_one(trace, plan, asked, before, after)
            if replayed.error:
                sums.failed += 1
            else:
                sums.add(replayed.found)
            yield Progress(len(traces), done, replayed)
        yield Progress(len(traces), len(traces), sums=sums)

    async def _replay_one(
        self,
        trace: SearchTrace,
        plan: ReplayPlan,
        asked: Callable[[SearchTrace], SearchQuery],
        before: Search,
        after: Search,
    ) -> Replayed:
        attribution = Attribution(
            org=trace.scope.org,
            namespace=trace.scope.namespace,
            subject=trace.subject,
            user_id=trace.user_id,
            feature=OP,
            kind=Kind.JOB,
            read_only=True,
        )
        try:
            with for_attribution(attribution):
                query = replace(asked(trace), top_k=plan.top_k, facets=False, explain=False)
                stood = (
                    list(trace.found[: plan.top_k])
                    if plan.as_recorded
                    else await _found(before, trace, _changed(query, plan.before, trace))
                )
                stands = await _found(after, trace, _changed(query, plan.after, trace))
        except LoomError as error:
            return Replayed(trace, difference([], []), error.reason.value)
        return Replayed(trace, difference(stood, stands))

    async def _distinct(self, plan: ReplayPlan, since: datetime, now: datetime) -> list[SearchTrace]:
        """Returns the searches, the oldest of equal ones."""
        found: dict[tuple[object, ...], SearchTrace] = {}
        after: Place | None = None
        while len(found) < plan.limit:
            page = await self._traces.since(plan.org, plan.namespace, since, now, after=after, limit=_PAGE)
            for trace in page:
                key = trace.scope, trace.query, trace.request, trace.user_id, trace.session_id
                found.setdefault(key, trace)
            if len(page) < _PAGE:
                break
            after = page[-1].place
        return list(found.values())[: plan.limit]

    async def _searching(self, way: Way) -> Search:
        """Returns what searches by an embedder."""
        if not way.embedder:
            return self._search
        served = await self._embedding.served_model()
        if way.embedder == served.name:
            return self._search
        match = _PREFIX.fullmatch(way.embedder)
        if match is None or match[2] != served.name or not 0 < int(match[1]) < served.dim:
            raise InvalidArgument.of(
                "embedder", f"must be {served.name} or prefix:<width>:{served.name} with a width under {served.dim}"
            )
        return self._narrowed(int(match[1]))


async def _found(search: Search, trace: SearchTrace, query: SearchQuery) -> list[Identity]:
    result = await search.search(trace.scope, query)
    return [hit.memory.identity for hit in result.hits]


def _changed(query: SearchQuery, way: Way, trace: SearchTrace) -> SearchQuery:
    """Returns a search asked that way; words such as "yesterday" keep the meaning that they had."""
    recipe = way.recipe or query.recipe
    weights = query.weights if way.recipe is None else None
    if way.weights is not None:
        weights = way.weights(recipe)
    as_of = trace.asked_at if way.as_asked else way.as_of
    return replace(
        query,
        recipe=recipe,
        mode=way.mode or query.mode,
        weights=weights,
        as_of=as_of or query.as_of,
        asked_at=query.asked_at or trace.asked_at,
    )
