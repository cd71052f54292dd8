"""Writing memories: each key's versions in order, none lost, nothing visible before it is whole."""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from loom_common.call import Scope, current
from loom_common.clock import Clock
from loom_common.conditional_writes import Hold
from loom_common.errors import Conflict, InvalidArgument, LoomError, ModelCallsOff, Overloaded, PayloadTooLarge
from loom_common.together import both
from loom_common.write_policy import WritePolicy
from loom_memory.app.commit import Commits, Stored, lock_key
from loom_memory.app.drafts import (
    DUPLICATE,
    Draft,
    Outcome,
    Prepared,
    Written,
    changes_of,
    decide,
    expect,
    require_bounded,
    too_much_text,
)
from loom_memory.app.embedding import EmbeddedText, EmbeddingPort
from loom_memory.app.statistics import StatisticsCache
from loom_memory.app.text_gates import TextGates
from loom_memory.app.validity import Validity
from loom_memory.app.verdicts import Duplicate, Verdictgiver, Verdicts
from loom_memory.app.write_versions import DrawnVersions, WriteVersions
from loom_memory.domain.analyzer import AnalyzedText, analyze_text
from loom_memory.domain.keys import key_text
from loom_memory.domain.memory import Identity, Memory, to_milliseconds
from loom_memory.domain.supersession import holding_until
from loom_memory.domain.waves import waves
from loom_memory.store.memories import MemoryRepository
from loom_memory.store.signals import Signal, SignalRepository, SignalRow
from loom_memory.store.versions import Claimed

logger = logging.getLogger(__name__)

# Source: chosen; contenders of other processes spread over a few statements' time, and ten rounds always sufficed.
_ROUNDS: Final = 10
_FIRST_WAIT_S: Final = 0.01
# Analysing more than this at once would hold the event loop for more than about 5 ms.
_INLINE_CHARS: Final = 20_000


@dataclass(slots=True)
class _Work:
    """What one call of `set_many` does."""

    scope: Scope
    actor: str
    policy: WritePolicy
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    stored: dict[int, Stored] = field(default_factory=dict)
    duplicates: dict[int, tuple[Draft, Duplicate]] = field(default_factory=dict)


class MemoryWriter:
    """Sets and deletes memories.

    What may be written at all is looked through first; then each draft is stored, or counted for the memory that it
    repeats, under the lock of its key. What it contradicts is ended after that, each under its own lock: two writers
    never wait for each other, and an interrupted write leaves a mark by which the sweep ends it.
    """

    def __init__(
        self,
        commits: Commits,
        memories: MemoryRepository,
        embedding: EmbeddingPort,
        gates: TextGates,
        verdicts: Verdictgiver,
        validity: Validity,
        signals: SignalRepository,
        *,
        clock: Clock,
        numbers: WriteVersions,
        statistics: StatisticsCache,
        deleted: Callable[[Scope, Identity, int], None],
    ) -> None:
        # `deleted` hears of each deletion, to mark its versions in the background.
        self._commits = commits
        self._memories = memories
        self._embedding = embedding
        self._gates = gates
        self._verdicts = verdicts
        self._validity = validity
        self._signals = signals
        self._clock = clock
        self._numbers = numbers
        self._statistics = statistics
        self._deleted = deleted

    async def set_one(self, scope: Scope, draft: Draft, actor: str) -> Written:
        """Stores one memory, or finds that there is nothing to store.

        Raises:
            Conflict: `expected_version` differs.
            LoomError: It could not be embedded or stored; nothing is visible of it.
        """
        outcome = (await self.set_many(scope, [draft], actor))[0]
        if isinstance(outcome, LoomError):
            raise outcome
        return outcome

    async def set_many(self, scope: Scope, drafts: Sequence[Draft], actor: str) -> list[Outcome]:
        """Stores memories and returns what became of each, in order; drafts of one identity keep theirs.

        Raises:
            InvalidArgument: They hold more text than one call may; nothing of them is stored.
            BackendUnavailable: What the namespace lets be written cannot be read.
        """
        require_bounded(drafts)
        admitted = await self._gates.admit(scope, drafts)
        work = _Work(scope, actor, admitted.policy)
        work.outcomes.update({place: each for place, each in enumerate(admitted.drafts) if isinstance(each, Written)})
        open_drafts = {place: each for place, each in enumerate(admitted.drafts) if isinstance(each, Draft)}
        async with self._commits.locks.all_of(lock_key(scope, draft.identity) for draft in open_drafts.values()):
            await self._set_waves(work, open_drafts)
        await self._reinforce(work)
        await self._supersede(work)
        return [work.outcomes[place] for place in range(len(drafts))]

    async def delete(
        self, scope: Scope, identity: Identity, actor: str, *, expected_version: int | None = None
    ) -> bool:
        """Deletes one memory at once from every read, and says whether there was one.

        Raises:
            Conflict: `expected_version` differs.
        """
        async with (
            self._commits.locks.all_of([lock_key(scope, identity)]),
            self._commits.conditional(scope, identity, expected_version) as hold,
        ):
            base, gone = await self._delete(scope, identity, actor, expected_version)
            if hold is not None:
                await hold.confirm()
        if base is None or gone is None:
            return False
        self._statistics.written(scope, 1)
        self._deleted(scope, identity, gone.version)
        return base.is_visible(gone.updated_at)

    async def _delete(
        self, scope: Scope, identity: Identity, actor: str, expected_version: int | None
    ) -> tuple[Memory | None, Memory | None]:
        """Stores a tombstone over the row that is there, and returns both; None where there is nothing to delete."""
        floor = Claimed(0, 0)
        wait_s = _FIRST_WAIT_S
        for _ in range(_ROUNDS):
            now = to_milliseconds(self._clock.now())
            base = (await self._memories.current(scope, [identity])).get(identity)
            expect(base, expected_version, now)
            if base is None or base.tombstoned_at is not None:
                return None, None
            with self._numbers.write() as numbers:
                gone = base.tombstone(actor, numbers.next(after=max(base.version, floor.version)), now)
                # Who expects a version may not pass one that another is about to make current.
                passed = floor.revision if expected_version is None else 0
                if await self._commits.bury(scope, gone, max(base.revision, passed) + 1):
                    return base, gone
            await asyncio.sleep(random.uniform(wait_s / 2, wait_s))  # noqa: S311  (spreads contenders; no secret)
            wait_s *= 2
            floor = (await self._commits.claimed(scope, [identity])).get(identity, floor)
        raise Overloaded("Others are writing the same key; try again.")

    async def _set_waves(self, work: _Work, drafts: Mapping[int, Draft]) -> None:
        for places in waves([draft.identity for draft in drafts.values()]):
            numbered = list(drafts)
            wave = {numbered[place]: drafts[numbered[place]] for place in places}
            try:
                await self._set_wave(work, wave)
            except InvalidArgument as error:
                if not work.stored and not any(isinstance(each, Written) for each in work.outcomes.values()):
                    raise
                # What came before is stored, so that this is the answer of these drafts alone.
                work.outcomes.update(dict.fromkeys(wave, error))

    async def _set_wave(self, work: _Work, wave: Mapping[int, Draft]) -> None:
        """Stores drafts of distinct identities."""
        conditional = [(place, draft) for place, draft in wave.items() if draft.expected_version is not None]
        async with AsyncExitStack() as stack:
            holds: dict[int, Hold] = {}
            for place, draft in sorted(conditional, key=lambda each: each[1].identity):
                try:
                    hold = await stack.enter_async_context(
                        self._commits.conditional(work.scope, draft.identity, draft.expected_version)
                    )
                except Conflict as error:
                    work.outcomes[place] = error
                    continue
                if hold is not None:
                    holds[place] = hold
            with self._numbers.write() as numbers:
                await self._store(
                    work, {place: each for place, each in wave.items() if place not in work.outcomes}, numbers
                )
            for place, hold in holds.items():
                if isinstance(work.outcomes.get(place), Written):
                    try:
                        await hold.confirm()
                    except Conflict as error:
                        work.outcomes[place] = error

    async def _store(self, work: _Work, drafts: dict[int, Draft], numbers: DrawnVersions) -> None:
        scope, outcomes = work.scope, work.outcomes
        prepared = Prepared()
        floors: dict[Identity, Claimed] = {}
        verdicts: Verdicts | None = None
        wait_s = _FIRST_WAIT_S
        for _ in range(_ROUNDS):
            if not drafts:
                break
            now = to_milliseconds(self._clock.now())
            held = await self._memories.current(scope, [draft.identity for draft in drafts.values()])
            decided = {place: decide(draft, held.get(draft.identity), now) for place, draft in drafts.items()}
            outcomes.update({place: outcome for place, outcome in decided.items() if outcome is not None})
            drafts = {place: draft for place, draft in drafts.items() if decided[place] is None}
            await self._prepare(list(drafts.values()), prepared)
            if verdicts is None:
                verdicts = await self._verdicts.judge(scope, work.policy, drafts, held, prepared, now)
                work.duplicates.update({place: (drafts[place], found) for place, found in verdicts.duplicates.items()})
                drafts = {place: each for place, each in drafts.items() if place not in verdicts.duplicates}
            changes = [
                replace(
                    change,
                    draft=_holding(change.draft, verdicts, change.place, now),
                    opponents=tuple(verdicts.opponents.get(change.place, ())),
                )
                for change in changes_of(drafts, held, prepared, outcomes)
            ]
            done = await self._commits.store(scope, changes, work.actor, numbers, now, floors)
            for stored in done.stored:
                work.stored[stored.change.place] = stored
                outcomes[stored.change.place] = _written(stored)
            contested = {change.place for change in done.contested}
            drafts = {place: draft for place, draft in drafts.items() if place in contested}
            if drafts:
                await asyncio.sleep(random.uniform(wait_s / 2, wait_s))  # noqa: S311  (spreads contenders; no secret)
                wait_s *= 2
                floors = await self._commits.claimed(scope, [draft.identity for draft in drafts.values()])
        outcomes.update({place: Overloaded("Others are writing the same key; try again.") for place in drafts})

    async def _prepare(self, drafts: Sequence[Draft], prepared: Prepared) -> None:
        """Embeds what is not embedded yet, values and keys in one request, and analyses the values."""
        values = [value for draft in drafts if (value := draft.content.value) not in prepared.analysed]
        texts = [*values, *(said for draft in drafts if (said := key_text(draft.identity.key)))]
        texts = [text for text in dict.fromkeys(texts) if text not in prepared.embedded]
        values = list(dict.fromkeys(values))
        try:
            embedded, analysed = await both(self._embed(texts), _analysed(values))
        except PayloadTooLarge as error:
            raise too_much_text(error) from error
        prepared.embedded.update(zip(texts, embedded, strict=True))
        prepared.analysed.update(zip(values, analysed, strict=True))

    async def _embed(self, texts: Sequence[str]) -> list[EmbeddedText]:
        """Returns the chunks of each text, or that the organisation has calls to models switched off.

        Any other failure is the caller's: a write that was refused is sent again, and finds the embedder back.
        """
        if not texts:
            return []
        try:
            return await self._embedding.embed_many(texts)
        except ModelCallsOff as error:
            return [error] * len(texts)

    async def _reinforce(self, work: _Work) -> None:
        """Counts repetitions for what they repeat."""
        rows = []
        now = to_milliseconds(self._clock.now())
        for place, (draft, found) in sorted(work.duplicates.items()):
            outcome = _repetition(draft, found, work.outcomes)
            work.outcomes[place] = outcome
            if isinstance(outcome, Written):
                rows.append(
                    SignalRow(
                        work.scope,
                        outcome.identity,
                        Signal.REPEATED,
                        work.actor,
                        now,
                        draft.content.source,
                        current().request_id,
                        found.cosine,
                    )
                )
        await self._signals.insert(rows)

    async def _supersede(self, work: _Work) -> None:
        """Ends the older memories that those of this call contradict."""
        # Where the written one is the older itself, its time was set as it was stored, and the mark alone is settled.
        await self._validity.end_all([mark for stored in work.stored.values() for mark in stored.marks])


def _holding(draft: Draft, verdicts: Verdicts, place: int, now: datetime) -> Draft:
    at = verdicts.until.get(place)
    return draft if at is None else replace(draft, stated=holding_until(draft.content, draft.stated, now, at))


def _written(stored: Stored) -> Written:
    memory, own = stored.memory, stored.memory.identity
    newer = [mark.newer for mark in stored.marks if mark.older == own]
    return Written(
        own, memory.revision, True, "", memory.updated_at,
        supersedes=tuple(mark.older for mark in stored.marks if mark.newer == own),
        superseded_by=newer[0] if newer else None,
        found=stored.change.draft.found,
    )  # fmt: skip


def _repetition(draft: Draft, found: Duplicate, outcomes: Mapping[int, Outcome]) -> Outcome:
    """Returns the outcome of a draft that repeats a memory, or a draft of the same call and what became of that."""
    told: Memory | Outcome = found.memory if found.memory is not None else outcomes[found.place]
    if isinstance(told, LoomError):
        return told
    identity = told.identity
    return Written(
        identity, told.revision, False, DUPLICATE, told.updated_at,
        message="Another memory says this already; it was counted as told again. Send `verbatim` to store it as well.",
        duplicate_of=identity, found=draft.found,
    )  # fmt: skip


async def _analysed(values: Sequence[str]) -> list[AnalyzedText]:
    if sum(map(len, values)) > _INLINE_CHARS:
        return await asyncio.to_thread(lambda: [analyze_text(value) for value in values])
    return [analyze_text(value) for value in values]
