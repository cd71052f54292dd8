"""Verdicts of a write by what is stored already: a repetition, a contradiction, or neither. No model judges here.

A verdict needs two things: a cosine at or above the threshold in force, and words that say the same or contradict each
other (`domain.likeness`). It compares within one organisation, namespace, agent and user alone, across sessions.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

import numpy as np

from loom_common.call import Scope
from loom_common.write_policy import WritePolicy
from loom_memory.app.access import own_filter
from loom_memory.app.drafts import Draft, Opponent, Prepared
from loom_memory.app.embedding import EmbeddingPort
from loom_memory.app.thresholds import Thresholds, ThresholdsInForce
from loom_memory.domain.apart import stands_apart
from loom_memory.domain.keys import key_text
from loom_memory.domain.likeness import MAX_CHARS, Likeness, compare, is_statement
from loom_memory.domain.memory import Filter, Identity, Memory
from loom_memory.domain.supersession import Ending, Window, ending, since, window_of
from loom_memory.store.embeddings import EmbeddingRepository, QueryVector, VectorHit
from loom_memory.store.memories import MemoryRepository

# Keys that Loom and its clients make where none is given.
_MADE: Final = re.compile(r"(?:m|fact)-[0-9a-f]{30}|[0-9A-HJKMNP-TV-Z]{26}")
# Source: chosen. The nearest rows of one fact are its repetitions and revisions; more than these say nothing new.
_NEAREST: Final = 8
# Drafts of one call whose words are compared on the event loop. Source: chosen; a few milliseconds.
_INLINE: Final = 8


@dataclass(frozen=True, slots=True)
class Duplicate:
    """What a draft repeats.

    Attributes:
        memory: The stored memory; None where it is a draft of the same call.
        place: Place of that draft.
        cosine: How near the two are.
    """

    memory: Memory | None
    place: int
    cosine: float


@dataclass(slots=True)
class Verdicts:
    """What is found of the drafts of one call.

    Attributes:
        duplicates: Drafts that repeat something, by place.
        opponents: What each of the others contradicts, by place.
        until: When drafts cease to hold that contradict something newer, by place.
        ends: When stored memories cease to hold that drafts contradict.
    """

    duplicates: dict[int, Duplicate] = field(default_factory=dict)
    opponents: dict[int, list[Opponent]] = field(default_factory=dict)
    until: dict[int, datetime] = field(default_factory=dict)
    ends: dict[Identity, datetime] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A draft that is compared with others."""

    place: int
    draft: Draft
    vector: Sequence[float]
    may_repeat: bool


class Verdictgiver:
    """Compares drafts with what is stored and with each other."""

    def __init__(
        self,
        memories: MemoryRepository,
        embeddings: EmbeddingRepository,
        embedding: EmbeddingPort,
        thresholds: ThresholdsInForce,
    ) -> None:
        self._memories = memories
        self._embeddings = embeddings
        self._embedding = embedding
        self._thresholds = thresholds

    async def judge(
        self,
        scope: Scope,
        policy: WritePolicy,
        drafts: Mapping[int, Draft],
        current: Mapping[Identity, Memory],
        prepared: Prepared,
        now: datetime,
    ) -> Verdicts:
        """Returns the verdicts of drafts whose vectors are at hand.

        It reads the store once for each owner of drafts that take part, and once more where one is near enough.
        """
        verdicts = Verdicts()
        if not (policy.duplicates or policy.conflicts):
            return verdicts
        candidates = [
            candidate
            for place, draft in drafts.items()
            if (candidate := _candidate(place, draft, current.get(draft.identity), prepared, now)) is not None
        ]
        if not candidates:
            return verdicts
        served = await self._embedding.served_model()
        thresholds = await self._thresholds.of(scope, served)
        near = await self._near(scope, served.name, candidates, now, min(thresholds.conflict, thresholds.duplicate))
        rows = await self._rows(scope, candidates, near, now)
        work = (candidates, near, rows, policy, thresholds, now, verdicts)
        if len(candidates) > _INLINE:
            await asyncio.to_thread(self._compare_all, *work)
        else:
            self._compare_all(*work)
        return verdicts

    def _compare_all(
        self,
        candidates: Sequence[_Candidate],
        near: Sequence[Sequence[VectorHit]],
        rows: Mapping[Identity, Memory],
        policy: WritePolicy,
        thresholds: Thresholds,
        now: datetime,
        verdicts: Verdicts,
    ) -> None:
        """Compares each draft with what is stored near it, and with the nearest of those before it in the call."""
        between = _cosines(candidates)
        least = min(thresholds.conflict, thresholds.duplicate)
        for number, candidate in enumerate(candidates):
            stored = [(rows[hit.identity], hit.cosine) for hit in near[number] if _is_of(rows.get(hit.identity), hit)]
            row = between[number, :number]
            places = sorted(np.flatnonzero(row >= least).tolist(), key=lambda place: (-row[place], place))
            earlier = [
                (candidates[place], float(row[place]))
                for place in places
                if candidates[place].place not in verdicts.duplicates
            ]
            self._compare(candidate, stored, earlier[:_NEAREST], policy, thresholds, now, verdicts)

    def _compare(
        self,
        candidate: _Candidate,
        stored: Sequence[tuple[Memory, float]],
        earlier: Sequence[tuple[_Candidate, float]],
        policy: WritePolicy,
        thresholds: Thresholds,
        now: datetime,
        verdicts: Verdicts,
    ) -> None:
        draft, place = candidate.draft, candidate.place
        alike = [(memory, cosine) for memory, cosine in stored if _is_peer(draft, memory)]
        if policy.duplicates and candidate.may_repeat:
            for memory, cosine in alike:
                if (
                    cosine >= thresholds.duplicate
                    and _same_session(draft, memory.identity)
                    and repeats(draft, memory, now)
                ):
                    verdicts.duplicates[place] = Duplicate(memory, -1, cosine)
                    return
            for other, cosine in earlier:
                if (
                    cosine >= thresholds.duplicate
                    and _same_owner(draft, other.draft)
                    and _same_session(draft, other.draft.identity)
                    and _repeats_draft(draft, other.draft)
                ):
                    verdicts.duplicates[place] = Duplicate(None, other.place, cosine)
                    return
        if not policy.conflicts:
            return
        own = Window(since(draft.content, draft.stated, now), draft.stated.invalid_at)
        for memory, cosine in alike:
            if cosine >= thresholds.conflict and _contradicts(draft.content.value, memory.content.value):
                window = window_of(memory)
                window = replace(window, until=verdicts.ends.get(memory.identity, window.until))
                end = ending(own, window)
                if end is not None:
                    _oppose(verdicts, place, end, draft, memory, cosine)
        for other, cosine in earlier:
            is_near = cosine >= thresholds.conflict and _same_owner(draft, other.draft)
            if is_near and _contradicts(draft.content.value, other.draft.content.value):
                _oppose_draft(verdicts, candidate, other, own, now, cosine)

    async def _near(
        self, scope: Scope, model: str, candidates: Sequence[_Candidate], now: datetime, least: float
    ) -> list[list[VectorHit]]:
        found: list[list[VectorHit]] = [[] for _ in candidates]
        owners: dict[Filter, list[int]] = {}
        for number, candidate in enumerate(candidates):
            draft = candidate.draft
            # A token that reads one session hears nothing of what others hold.
            wanted = own_filter(Filter(user_id=draft.identity.user_id, agent=draft.content.agent))
            owners.setdefault(wanted, []).append(number)
        for wanted, numbers in owners.items():
            queries = [QueryVector(model, candidates[number].vector) for number in numbers]
            each = await self._embeddings.near_each(scope, wanted, now, queries, least=least, limit=_NEAREST)
            for number, hits in zip(numbers, each, strict=True):
                found[number] = [hit for hit in hits if hit.identity != candidates[number].draft.identity]
        return found

    async def _rows(
        self, scope: Scope, candidates: Sequence[_Candidate], near: Sequence[Sequence[VectorHit]], now: datetime
    ) -> dict[Identity, Memory]:
        identities = {hit.identity for hits in near for hit in hits}
        return await self._memories.fetch(scope, Filter(), sorted(identities), now)


def repeats(draft: Draft, memory: Memory, now: datetime) -> bool:
    """Says whether a draft adds nothing to a stored memory: no word, no time, no tag and no promise.

    A memory that holds no longer is not repeated: told again, it holds again.
    """
    content, held = draft.content, memory.content
    if memory.invalid_at is not None and memory.invalid_at <= now:
        return False
    return (
        content.kind == held.kind
        and content.event_time in (None, held.event_time)
        and draft.stated.valid_at in (None, memory.valid_at)
        and draft.stated.invalid_at in (None, memory.invalid_at)
        and draft.stated.attestation in ("", memory.attestation)
        and draft.stated.sensitivity in ("", memory.sensitivity_stated)
        and set(draft.stated.derived_from) <= set(memory.derived_from)
        and set(content.tags) - set(draft.found.labels) <= set(held.tags)
        and content.pinned <= held.pinned
        and content.expires_at == held.expires_at
        and compare(content.value, held.value) is Likeness.DUPLICATE
    )


def _repeats_draft(draft: Draft, other: Draft) -> bool:
    return (
        replace(draft.content, value="", source="", importance=0.0)
        == replace(other.content, value="", source="", importance=0.0)
        and draft.stated == other.stated
        and compare(draft.content.value, other.content.value) is Likeness.DUPLICATE
    )


def _candidate(place: int, draft: Draft, base: Memory | None, prepared: Prepared, now: datetime) -> _Candidate | None:
    """Returns a draft that takes part in comparisons, None for one that stands for itself.

    These stand for themselves: a key that is written again, what is stored verbatim, turns of conversations and other
    kinds that stand apart, and a text that says more than one thing. A key that only names a row (`turn-17`) is its
    writer's way to keep rows apart: such a row is never a repetition.
    """
    content = draft.content
    is_held = base is not None and base.is_visible(now)
    is_revival = base is not None and is_held and base.invalid_at is not None and base.content.value == content.value
    if draft.verbatim or stands_apart(content) or len(content.value) > MAX_CHARS:
        return None
    if is_held and not is_revival:
        return None
    if draft.has_own_key and key_text(draft.identity.key) and not is_statement(content.value):
        # What it is about stands in its key alone.
        return None
    only_names = draft.has_own_key and _only_names(draft.identity.key)
    if only_names and draft.identity.session_id:
        return None
    chunks = prepared.chunks(draft)
    values = [chunk for chunk in chunks if not chunk.of_key] if isinstance(chunks, list) else []
    if len(values) != 1 or not values[0].vector:
        return None
    return _Candidate(place, draft, values[0].vector, may_repeat=not only_names and not is_revival)


def _cosines(candidates: Sequence[_Candidate]) -> "np.ndarray[tuple[int, int], np.dtype[np.float32]]":
    """Returns the cosines between all candidates: their vectors are of unit length."""
    matrix = np.asarray([candidate.vector for candidate in candidates], np.float32)
    return matrix @ matrix.T


def _is_of(memory: Memory | None, hit: VectorHit) -> bool:
    return memory is not None and memory.version == hit.version


def _is_peer(draft: Draft, memory: Memory) -> bool:
    held = memory.content
    return (
        memory.identity.user_id == draft.identity.user_id
        and held.agent == draft.content.agent
        and held.speaker == draft.content.speaker
        and not stands_apart(held)
        and (not key_text(memory.identity.key) or is_statement(held.value))
        and not (_only_names(memory.identity.key) and memory.identity.session_id)
    )


def _only_names(key: str) -> bool:
    """Says whether somebody gave a key that tells rows apart and says nothing; programs that need one draw lots."""
    return not key_text(key) and _MADE.fullmatch(key) is None


def _same_owner(one: Draft, other: Draft) -> bool:
    return (
        one.identity.user_id == other.identity.user_id
        and one.content.agent == other.content.agent
        and one.content.speaker == other.content.speaker
    )


def _same_session(draft: Draft, identity: Identity) -> bool:
    """Says whether both are of one session: what is filed under another is a memory of its own."""
    return draft.identity.session_id == identity.session_id


def _contradicts(later: str, earlier: str) -> bool:
    return compare(later, earlier) is Likeness.CONFLICT


def _oppose(verdicts: Verdicts, place: int, end: Ending, draft: Draft, memory: Memory, cosine: float) -> None:
    until = draft.stated.invalid_at if end.ends_new else memory.invalid_at
    verdicts.opponents.setdefault(place, []).append(
        Opponent(memory.identity, memory.version, cosine, end.ends_new, end.at, until)
    )
    if end.ends_new:
        verdicts.until[place] = min(verdicts.until.get(place, end.at), end.at)
    else:
        verdicts.ends[memory.identity] = end.at


def _oppose_draft(
    verdicts: Verdicts, candidate: _Candidate, other: _Candidate, own: Window, now: datetime, cosine: float
) -> None:
    """Notes a contradiction inside one call; of two that begin at one moment the later in the call holds."""
    stated = other.draft.stated
    theirs = Window(since(other.draft.content, stated, now), verdicts.until.get(other.place, stated.invalid_at))
    end = ending(own, theirs)
    if end is None:
        return
    loser, until = (candidate.place, own.until) if end.ends_new else (other.place, theirs.until)
    verdicts.opponents.setdefault(candidate.place, []).append(
        Opponent(other.draft.identity, 0, cosine, end.ends_new, end.at, until)
    )
    verdicts.until[loser] = min(verdicts.until.get(loser, end.at), end.at)
