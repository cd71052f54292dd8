"""Searching everything: the legs side by side, then the rules on what of it is shown."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from loom_common.call import Scope
from loom_common.errors import InvalidArgument, LoomError
from loom_memory.app.embedding import EmbeddingPort
from loom_memory.app.search.abstention import BELOW_FLOOR
from loom_memory.app.search.answering import Answer, Presentation, paragraph_of
from loom_memory.app.search.namespaces import CallerNamespaces, ReadNamespaces
from loom_memory.app.search.query import SearchQuery
from loom_memory.app.search.several import abstained, in_one_order
from loom_memory.app.thresholds import ThresholdsInForce, Tier
from loom_memory.domain.memory import Hit, Kept, SearchResult
from loom_memory.domain.reader import rendered
from loom_memory.knowledge.app.search import KnowledgeResult
from loom_memory.unified.app.asking import Asking, OfRepository
from loom_memory.unified.app.found import (
    Asked,
    ConversationsSide,
    Found,
    MemorySide,
    ProfileSide,
)
from loom_memory.unified.app.legs import Leg, Outcome, outcome_of
from loom_memory.unified.app.once import embeddings_once
from loom_memory.unified.app.ports import SectionMatch, TurnsFound, Verdict
from loom_memory.unified.app.reading import sections_text
from loom_memory.unified.app.sides import conversations_side, knowledge_side, shown_hit, tracker_side
from loom_memory.unified.domain.composing import Composed, Composing, FloorMode, composed
from loom_memory.unified.domain.defects import is_defect_shaped
from loom_memory.unified.domain.margins import (
    KNOWLEDGE_MIN,
    PROFILE_MIN,
    Gauge,
    floor_of,
    least_of,
    margins_of,
)
from loom_memory.unified.domain.why import why
from loom_memory.unified.domain.withholding import Rule, Sieve

T = TypeVar("T")

# Thresholds are kept for seconds: only a process that has just begun asks for them, and no leg waits long for that.
_GAUGE_BOUND_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Gates:
    """What the settings say; None where a gate is derived.

    Attributes:
        precision_floor: Below 0 it is derived, and 0 is none.
    """

    precision_floor: float = -1.0
    foreign_margin: float | None = None
    knowledge_min: float | None = None
    profile_min: float | None = None
    floor_mode: FloorMode = FloorMode.DROP


class Recording(Protocol):
    """Takes down what is found, and keeps its pages; `Answering` says how."""

    async def page(self, scope: Scope, query: SearchQuery, look: Presentation) -> Answer:
        """Returns a page of a search before."""
        ...

    async def keep(self, scope: Scope, query: SearchQuery, kept: Sequence[Kept], first: int) -> str:
        """Returns the handle of the page that begins with what is kept."""
        ...

    def expose(self, hits: Sequence[Hit]) -> None:
        """Takes down what is shown."""
        ...

    def take_down(self, scope: Scope, query: SearchQuery, hits: Sequence[Hit], request: Callable[[], str]) -> None:
        """Takes down what was asked and found."""
        ...


@dataclass(frozen=True, slots=True)
class _Legs:
    """What the legs brought."""

    memory: Outcome[list[SearchResult]]
    knowledge: Outcome[KnowledgeResult]
    profile: Outcome[list[SectionMatch]]
    conversations: Outcome[TurnsFound]
    tracker: Outcome[Verdict | None] | None
    repository: Outcome[OfRepository] | None


class UnifiedSearch:
    """Answers `search.query`."""

    def __init__(
        self,
        asking: Asking,
        namespaces: CallerNamespaces,
        recording: Recording,
        embedding: EmbeddingPort,
        thresholds: ThresholdsInForce,
        gates: Gates,
        bounds_s: dict[Leg, float] | None = None,
    ) -> None:
        self._asking = asking
        self._namespaces = namespaces
        self._recording = recording
        self._embedding = embedding
        self._thresholds = thresholds
        self._gates = gates
        self._bounds_s = bounds_s

    async def search(self, asked: Asked) -> Found:
        """Returns what every leg answers. A leg that fails says so on its own side, and the others still answer.

        Raises:
            InvalidArgument: The query is blank, or the page no handle.
            BackendUnavailable: A page could not be read.
        """
        if not asked.query.text.strip():
            raise InvalidArgument.of("query", "must hold text")
        read = await self._namespaces.read_by(asked.scope, asked.reach, is_named=asked.is_named)
        if asked.look.page:
            answer = await self._recording.page(read.home, asked.query, asked.look)
            return Found(read.home, MemorySide(answer, answer.hits, answer.rendered))
        gauge = await self._gauge(read.home)
        async with embeddings_once():
            legs = await self._legs(read, asked, gauge)
        return await self._composed(read, asked, gauge, legs)

    async def _legs(self, read: ReadNamespaces, asked: Asked, gauge: Gauge) -> _Legs:
        query, asking, org = asked.query, self._asking, read.home.org
        least = least_of(gauge, self._gates.profile_min, PROFILE_MIN)
        has_defect = bool(asked.code_scope) and is_defect_shaped(query.text)
        async with asyncio.TaskGroup() as group:
            memory = group.create_task(self._outcome(Leg.MEMORY, asking.memories(read, query)))
            knowledge = group.create_task(self._outcome(Leg.KNOWLEDGE, asking.documents(read.all, query)))
            profile = group.create_task(self._outcome(Leg.PROFILE, asking.profiles(read.all, query, least)))
            turns = group.create_task(self._outcome(Leg.CONVERSATIONS, asking.conversations(read.all, query)))
            tracker = repository = None
            if has_defect:
                tracker = group.create_task(
                    self._outcome(Leg.TRACKER, asking.tracker(org, asked.code_scope, query.text))
                )
            if asked.code_scope:
                repository = group.create_task(
                    self._outcome(Leg.REPOSITORY, asking.repository(org, asked.code_scope, query))
                )
        return _Legs(
            memory.result(),
            knowledge.result(),
            profile.result(),
            turns.result(),
            tracker.result() if tracker is not None else None,
            repository.result() if repository is not None else None,
        )

    async def _outcome(self, leg: Leg, call: Coroutine[None, None, T]) -> Outcome[T]:
        return await outcome_of(leg, call, self._bounds_s)

    async def _composed(self, read: ReadNamespaces, asked: Asked, gauge: Gauge, legs: _Legs) -> Found:
        gates, explain = self._gates, asked.query.explain
        sieve = Sieve(read.home, gauge, floor_of(gauge, gates.precision_floor), margins_of(gauge, gates.foreign_margin))
        repository = legs.repository.found if legs.repository and legs.repository.found else OfRepository()
        verdict = legs.tracker.found if legs.tracker else None
        how = Composing(asked.query.top_k, gates.floor_mode, keeps_all=explain, has_verdict=verdict is not None)
        results = legs.memory.found or []
        chosen = composed(sieve, in_one_order(results), repository.decisions, how)
        withheld = Counter(chosen.withheld)
        memory = await self._memory_side(asked, sieve, results, chosen, legs.memory.error)
        is_strict = chosen.fact is not None and not explain
        knowledge, taken = knowledge_side(
            asked,
            sieve,
            least_of(gauge, gates.knowledge_min, KNOWLEDGE_MIN),
            legs.knowledge,
            repository.passages,
            is_strict=is_strict,
        )
        withheld += taken
        conversations = conversations_side(asked, read.home, legs.conversations)
        if is_strict and conversations.hits:
            withheld[Rule.CONVERSATIONS] += len(conversations.hits)
            conversations = ConversationsSide(pending=conversations.pending)
        sections = legs.profile.found or ()
        return Found(
            home=read.home,
            memory=memory,
            knowledge=knowledge,
            profile=ProfileSide(sections, sections_text(sections, read.home), legs.profile.error),
            conversations=conversations,
            tracker=tracker_side(legs.tracker),
            withheld=withheld,
            repository_error=legs.repository.error if legs.repository else "",
        )

    async def _memory_side(
        self, asked: Asked, sieve: Sieve, results: Sequence[SearchResult], chosen: Composed, error: str
    ) -> MemorySide:
        if error:
            return MemorySide(error=error)
        query, home = asked.query, sieve.home
        decided = {id(hit) for hit in chosen.decisions}
        own = [hit for hit in chosen.hits if id(hit) not in decided]
        # What is taken down is the search's own; decisions that joined it are shown for themselves.
        self._recording.expose(own)
        self._recording.expose(chosen.decisions)
        self._recording.take_down(home, query, own, asked.request)
        try:
            next_page = await self._recording.keep(home, query, chosen.behind, chosen.before)
        except LoomError as failed:
            return MemorySide(error=failed.reason.value)
        shown = [shown_hit(hit, asked, chosen, is_decision=id(hit) in decided) for hit in chosen.hits]
        result = SearchResult(
            hits=own,
            candidates_total=sum(result.candidates_total for result in results) + len(chosen.decisions),
            abstain_code=_why_none(results, chosen),
            pending=sum(result.pending for result in results),
            withheld=sum(result.withheld for result in results) + chosen.withheld.total(),
            explanation=results[0].explanation,
        )
        answer = Answer(result, [each for each in shown if id(each.hit) not in decided], next_page=next_page)
        whys = [
            why(
                hit,
                sieve,
                is_fact=hit is chosen.fact,
                is_decision=id(hit) in decided,
                taken_by=chosen.would_take.get(place),
            )
            for place, hit in enumerate(chosen.hits)
        ]
        text = rendered([paragraph_of(each, home.namespace) for each in shown])
        return MemorySide(answer, shown, text, whys if query.explain else ())

    async def _gauge(self, home: Scope) -> Gauge:
        """Returns how the served embedder tells texts apart; where it is away the legs say so themselves."""
        try:
            async with asyncio.timeout(_GAUGE_BOUND_S):
                served = await self._embedding.served_model()
                thresholds = await self._thresholds.of(home, served)
        except (LoomError, TimeoutError):
            return Gauge()
        is_measured = thresholds.tier is not Tier.SETTINGS
        span = thresholds.conflict - thresholds.noise_floor if is_measured else None
        return Gauge(thresholds.noise_floor, span)


def _why_none(results: Sequence[SearchResult], chosen: Composed) -> str:
    """Returns why no memory is shown; what the rules took was found, and is too far from the question."""
    if not chosen.hits and any(result.hits for result in results):
        return BELOW_FLOOR
    return abstained(results, has_hits=bool(chosen.hits))
