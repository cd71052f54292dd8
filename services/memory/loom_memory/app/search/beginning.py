"""Begins a search: reads its question, and settles the moment, the legs and the gates that it goes by."""

import asyncio
from dataclasses import replace
from datetime import datetime
from typing import Final

import regex

from loom_common.call import Scope
from loom_common.clock import Clock
from loom_memory.app.embedding import EmbeddingPort
from loom_memory.app.search.as_of import Past
from loom_memory.app.search.ports import MemoryRows, NamedRows, Reinforcement, Vectors
from loom_memory.app.search.query import SearchMode, SearchQuery
from loom_memory.app.search.run import WIDE_POOL, SearchRun
from loom_memory.app.statistics import StatisticsCache
from loom_memory.app.thresholds import ThresholdsInForce
from loom_memory.app.write_versions import WriteVersions
from loom_memory.domain.intents import intent_of
from loom_memory.domain.names import named_exactly
from loom_memory.domain.query_cues import read_cues
from loom_memory.domain.recipes import Recipe
from loom_memory.domain.time_phrases import TimePhrase, names_a_time, times_named, without_times

# What a question about a time alone says beside the time.
_VAGUE: Final = regex.compile(
    r"\b(?:what|which|anything|something|everything|things?|stuff|did|do|does|done|was|were|is|are|has|have|had|happen\w*"
    r"|new|news|change[ds]?|going|went|on|up|about|i|we|you|me|my|us|our|tell|show|list|remember\w*|note[sd]?|memor\w+"
    r"|discuss\w*|talk\w*|said|say|in|from|during|since|until|before|after|between|and|the|of|at|to|all)\b"
    r"|[\p{P}\s]",
    regex.IGNORECASE,
)


class Beginning:
    """Begins searches."""

    def __init__(
        self,
        rows: MemoryRows,
        vectors: Vectors,
        legs: NamedRows,
        past: Past,
        embedding: EmbeddingPort,
        thresholds: ThresholdsInForce,
        *,
        statistics: StatisticsCache,
        reinforcement: Reinforcement,
        numbers: WriteVersions,
        clock: Clock,
    ) -> None:
        self._rows = rows
        self._vectors = vectors
        self._legs = legs
        self._past = past
        self._embedding = embedding
        self._thresholds = thresholds
        self._statistics = statistics
        self._reinforcement = reinforcement
        self._numbers = numbers
        self._clock = clock

    async def of(self, scope: Scope, query: SearchQuery) -> SearchRun:
        """Returns the search that is to be run.

        Raises:
            BackendUnavailable: The store or embedding cannot be reached.
        """
        settled, now = self._numbers.settled, self._clock.now()
        # Words alone are found while embedding is away.
        served = None if query.mode is SearchMode.LEXICAL else await self._embedding.served_model()
        run = await self._in_time(scope, query, now)
        times = await _times(query.text, query.asked_at or run.now)
        weights = query.weights or query.plan.weights
        only_time = bool(times) and not _VAGUE.sub("", without_times(query.text, times))
        cues = run.cues
        if query.recipe is Recipe.TEMPORAL and times and not only_time:
            # What was said then seldom repeats the words by which it is asked for.
            cues = read_cues(without_times(query.text, times), run.statistics.speakers)
        return replace(
            run,
            cues=cues,
            served=served if weights.vector else None,
            thresholds=None if served is None else await self._thresholds.of(scope, served),
            settled=settled,
            pool=max(query.plan.pool, query.top_k, WIDE_POOL if query.wide else 0),
            weights=weights,
            intent=intent_of(query.text),
            names=named_exactly(query.text),
            times=times,
            only_time=only_time,
        )

    async def _in_time(self, scope: Scope, query: SearchQuery, now: datetime) -> SearchRun:
        """Returns the search over the namespace as it is, or as it was at the moment that is asked about."""
        if query.as_of is None or query.as_of >= now:
            statistics = await self._statistics.get(scope, query.wanted)
            rows, vectors, legs = self._rows, self._vectors, self._legs
            uses = await self._reinforcement.uses(scope)
            is_past, unsearched = False, 0
        else:
            past = await self._past.at(scope, query.wanted, query.as_of)
            statistics = await past.statistics(scope, query.wanted, query.as_of)
            rows, vectors, legs, uses = past, past, past, {}
            now, is_past, unsearched = query.as_of, True, past.unsearched
        return SearchRun(
            scope=scope,
            query=query,
            rows=rows,
            vectors=vectors,
            legs=legs,
            cues=read_cues(query.text, statistics.speakers),
            statistics=statistics,
            now=now,
            settled=0,
            pool=0,
            weights=query.plan.weights,
            uses=uses,
            is_past=is_past,
            unsearched=unsearched,
        )


async def _times(text: str, asked_at: datetime) -> tuple[TimePhrase, ...]:
    """Returns the times that a question names; reading them may import a library, which the loop need not wait for."""
    if not names_a_time(text):
        return ()
    return await asyncio.to_thread(times_named, text, asked_at.date())
