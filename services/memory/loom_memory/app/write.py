"""Writing memories: each key's versions in order, none lost, nothing visible before it is whole."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clock import Clock
from loom_common.conditional_writes import Claims, Hold, claim_name
from loom_common.errors import Conflict, InvalidArgument, LoomError, ModelCallsOff, Overloaded, PayloadTooLarge
from loom_common.local_locks import KeyedLocks
from loom_common.together import both
from loom_memory.app.drafts import (
    Change,
    Draft,
    Outcome,
    Prepared,
    Written,
    changes_of,
    decide,
    embedded_chunks,
    expect,
    next_version,
    require_bounded,
    too_much_text,
)
from loom_memory.app.embedding import EmbeddedText, EmbeddingPort, is_stub
from loom_memory.app.statistics import StatisticsCache
from loom_memory.app.write_versions import DrawnVersions, WriteVersions
from loom_memory.domain.analyzer import AnalyzedText, analyze_text
from loom_memory.domain.keys import key_text
from loom_memory.domain.memory import Identity, Memory, to_milliseconds
from loom_memory.domain.waves import waves
from loom_memory.store.embeddings import EmbeddingRepository
from loom_memory.store.memories import MemoryRepository
from loom_memory.store.versions import Claimed, VersionRepository

# Source: chosen; contenders of other processes spread over a few statements' time, and ten rounds always sufficed.
_ROUNDS: Final = 10
_FIRST_WAIT_S: Final = 0.01
# A version of another process that did not become current within this time belongs to a write that ended halfway.
_DEAD_AFTER_NS: Final = 60_000_000_000
# Analysing more than this at once would hold the event loop for more than about 5 ms.
_INLINE_CHARS: Final = 20_000


class MemoryWriter:
    """Sets and deletes memories.

    In one process a lock per identity orders the writers. Where other processes write the same database, a version row
    doubles as a claim of its revision: who finds another's claim of the same revision withdraws its own and tries
    again, so that no two acknowledged versions share a revision and none is lost.
    """

    def __init__(
        self,
        memories: MemoryRepository,
        versions: VersionRepository,
        embeddings: EmbeddingRepository,
        embedding: EmbeddingPort,
        *,
        clock: Clock,
        numbers: WriteVersions,
        statistics: StatisticsCache,
        deleted: Callable[[Scope, Identity, int], None],
        stubbed: Callable[[Scope], None],
        claims: Claims | None,
    ) -> None:
        # `deleted` hears of each deletion, to mark its versions in the background, and `stubbed` of a memory that was
        # stored without vectors; `claims` is None where this process alone writes the database.
        self._memories = memories
        self._versions = versions
        self._embeddings = embeddings
        self._embedding = embedding
        self._clock = clock
        self._numbers = numbers
        self._statistics = statistics
        self._deleted = deleted
        self._stubbed = stubbed
        self._claims = claims
        self._locks = KeyedLocks()

    async def set_one(self, scope: Scope, draft: Draft, actor: str) -> Written:
        """Stores one memory, or finds its content stored already.

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
        """
        require_bounded(drafts)
        outcomes: dict[int, Outcome] = {}
        async with self._locks.all_of(_lock_key(scope, draft.identity) for draft in drafts):
            for places in waves([draft.identity for draft in drafts]):
                wave = {place: drafts[place] for place in places}
                try:
                    outcomes.update(await self._set_wave(scope, wave, actor))
                except InvalidArgument as error:
                    if not outcomes:
                        raise
                    # What came before is stored, so that this is the answer of these drafts alone.
                    outcomes.update(dict.fromkeys(places, error))
        return [outcomes[place] for place in range(len(drafts))]

    async def delete(
        self, scope: Scope, identity: Identity, actor: str, *, expected_version: int | None = None
    ) -> bool:
        """Deletes one memory at once from every read, and says whether there was one.

        Raises:
            Conflict: `expected_version` differs.
        """
        async with (
            self._locks.all_of([_lock_key(scope, identity)]),
            self._conditional(scope, identity, expected_version) as hold,
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
                if await self._bury(scope, gone, max(base.revision, passed) + 1):
                    return base, gone
            await asyncio.sleep(random.uniform(wait_s / 2, wait_s))  # noqa: S311  (spreads contenders; no secret)
            wait_s *= 2
            floor = (await self._claimed(scope, [identity])).get(identity, floor)
        raise Overloaded("Others are writing the same key; try again.")

    async def _bury(self, scope: Scope, gone: Memory, revision: int) -> bool:
        """Stores a tombstone, or says that another process claimed the revision after the one it is over.

        The claim is an empty version, which no read shows. The row comes before the mark: a mark alone would hide the
        versions of a memory that is still shown. The mark takes the claim back, so that the revision stays free.
        """
        if self._claims is None:
            await self._memories.insert([(gone, AnalyzedText([], 0))])
            await self._versions.insert([gone])
            return True
        claim = replace(gone, revision=revision, tombstoned_at=None)
        await self._versions.insert([claim])
        if await self._contested(scope, [claim]):
            return False
        await self._memories.insert([(gone, AnalyzedText([], 0))])
        await self._versions.insert([replace(gone, revision=0)])
        return True

    async def _set_wave(self, scope: Scope, wave: dict[int, Draft], actor: str) -> dict[int, Outcome]:
        """Stores drafts of distinct identities."""
        conditional = [draft for draft in wave.values() if draft.expected_version is not None]
        async with AsyncExitStack() as stack:
            holds: dict[Identity, Hold] = {}
            outcomes: dict[int, Outcome] = {}
            for draft in sorted(conditional, key=lambda draft: draft.identity):
                try:
                    hold = await stack.enter_async_context(
                        self._conditional(scope, draft.identity, draft.expected_version)
                    )
                except Conflict as error:
                    outcomes.update({place: error for place, other in wave.items() if other is draft})
                    continue
                if hold is not None:
                    holds[draft.identity] = hold
            open_drafts = {place: draft for place, draft in wave.items() if place not in outcomes}
            with self._numbers.write() as numbers:
                outcomes.update(await self._store(scope, open_drafts, actor, numbers))
            for place, draft in wave.items():
                if draft.identity in holds and isinstance(outcomes[place], Written):
                    try:
                        await holds[draft.identity].confirm()
                    except Conflict as error:
                        outcomes[place] = error
        return outcomes

    async def _store(
        self, scope: Scope, drafts: dict[int, Draft], actor: str, numbers: DrawnVersions
    ) -> dict[int, Outcome]:
        outcomes: dict[int, Outcome] = {}
        prepared = Prepared()
        floors: dict[Identity, Claimed] = {}
        wait_s = _FIRST_WAIT_S
        for _ in range(_ROUNDS):
            if not drafts:
                break
            now = to_milliseconds(self._clock.now())
            current = await self._memories.current(scope, [draft.identity for draft in drafts.values()])
            decided = {place: decide(draft, current.get(draft.identity), now) for place, draft in drafts.items()}
            outcomes.update({place: outcome for place, outcome in decided.items() if outcome is not None})
            drafts = {place: draft for place, draft in drafts.items() if decided[place] is None}
            await self._prepare(list(drafts.values()), prepared)
            changes = list(changes_of(drafts, current, prepared, outcomes))
            contested = await self._commit(scope, changes, actor, numbers, now, floors, outcomes)
            drafts = {change.place: change.draft for change in contested}
            if drafts:
                await asyncio.sleep(random.uniform(wait_s / 2, wait_s))  # noqa: S311  (spreads contenders; no secret)
                wait_s *= 2
                floors = await self._claimed(scope, [draft.identity for draft in drafts.values()])
        outcomes.update({place: Overloaded("Others are writing the same key; try again.") for place in drafts})
        return outcomes

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

    async def _commit(
        self,
        scope: Scope,
        changes: Sequence[Change],
        actor: str,
        numbers: DrawnVersions,
        now: datetime,
        floors: dict[Identity, Claimed],
        outcomes: dict[int, Outcome],
    ) -> list[Change]:
        """Stores changes and returns those whose revision another process claimed meanwhile.

        The row in `memory` comes last, because nothing is visible before it: a crash leaves vectors or versions that
        reads ignore and the sweep removes.
        """
        if not changes:
            return []
        rows = [(change, next_version(scope, change, actor, numbers, now, floors)) for change in changes]
        model = (await self._embedding.served_model()).name
        marks = [change.base for change in changes if change.base and change.base.tombstoned_at is not None]
        await both(
            self._embeddings.insert(
                model, [chunk for change, memory in rows for chunk in embedded_chunks(change, memory)]
            ),
            self._versions.insert([*marks, *(memory for _, memory in rows)]),
        )
        contested: set[Identity] = set()
        if self._claims is not None:
            contested = await self._contested(scope, [memory for _, memory in rows])
        won = [(change, memory) for change, memory in rows if memory.identity not in contested]
        if won:
            await self._memories.insert([(memory, change.text) for change, memory in won])
            self._statistics.written(scope, len(won))
            if any(is_stub(change.chunks) for change, _ in won):
                self._stubbed(scope)
        for change, memory in won:
            outcomes[change.place] = Written(memory.identity, memory.revision, True, "", memory.updated_at)
        return [change for change, memory in rows if memory.identity in contested]

    async def _contested(self, scope: Scope, written: Sequence[Memory]) -> set[Identity]:
        """Returns the identities whose revision, or a later one, another claims, after withdrawing these versions."""
        own = [memory.version for memory in written]
        others = await self._claimed(scope, [memory.identity for memory in written], own)
        lost = [
            memory
            for memory in written
            if memory.identity in others and others[memory.identity].revision >= memory.revision
        ]
        if lost:
            await self._versions.withdraw(lost)
        return {memory.identity for memory in lost}

    async def _claimed(
        self, scope: Scope, identities: Sequence[Identity], own: Sequence[int] = ()
    ) -> dict[Identity, Claimed]:
        return await self._versions.claimed(scope, identities, own, self._clock.now_ns() - _DEAD_AFTER_NS)

    @asynccontextmanager
    async def _conditional(
        self, scope: Scope, identity: Identity, expected_version: int | None
    ) -> AsyncIterator[Hold | None]:
        """Holds the identity among all processes, for a write that depends on what it reads."""
        if expected_version is None or self._claims is None:
            yield None
            return
        async with self._claims.hold(claim_name("memory", *_lock_key(scope, identity))) as hold:
            yield hold


async def _analysed(values: Sequence[str]) -> list[AnalyzedText]:
    if sum(map(len, values)) > _INLINE_CHARS:
        return await asyncio.to_thread(lambda: [analyze_text(value) for value in values])
    return [analyze_text(value) for value in values]


def _lock_key(scope: Scope, identity: Identity) -> tuple[str, ...]:
    return scope.org, scope.namespace, identity.user_id, identity.session_id, identity.key
