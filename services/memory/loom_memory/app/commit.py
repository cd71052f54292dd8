"""The one way in which versions of memories reach the store: whole, in order, and none lost to another process."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clock import Clock
from loom_common.conditional_writes import Claims, Hold, claim_name
from loom_common.ids import new_id
from loom_common.local_locks import KeyedLocks
from loom_common.together import both
from loom_memory.app.drafts import Change, embedded_chunks, next_version
from loom_memory.app.embedding import EmbeddingPort, is_stub
from loom_memory.app.statistics import StatisticsCache
from loom_memory.app.write_versions import DrawnVersions
from loom_memory.domain.analyzer import AnalyzedText
from loom_memory.domain.conflict import Mark
from loom_memory.domain.memory import Identity, Memory
from loom_memory.store.conflicts import ConflictRepository
from loom_memory.store.embeddings import EmbeddingRepository
from loom_memory.store.memories import MemoryRepository
from loom_memory.store.versions import Claimed, VersionRepository

# A version of another process that did not become current within this time belongs to a write that ended halfway.
_DEAD_AFTER_NS: Final = 60_000_000_000


@dataclass(frozen=True, slots=True)
class Stored:
    """One change that is stored: the row, and the marks of what it contradicts."""

    change: Change
    memory: Memory
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class Committed:
    """What became of changes: those that are stored, and those whose revision another process claimed meanwhile."""

    stored: list[Stored]
    contested: list[Change]


class Commits:
    """Stores versions.

    In one process a lock per identity orders the writers. Where other processes write the same database, a version row
    doubles as a claim of its revision: who finds another's claim of the same revision withdraws its own and tries
    again, so that no two acknowledged versions share a revision and none is lost.

    Attributes:
        locks: A lock for each `lock_key`; whoever stores holds those of its identities.
    """

    def __init__(
        self,
        memories: MemoryRepository,
        versions: VersionRepository,
        embeddings: EmbeddingRepository,
        embedding: EmbeddingPort,
        conflicts: ConflictRepository,
        *,
        clock: Clock,
        statistics: StatisticsCache,
        stubbed: Callable[[Scope], None],
        claims: Claims | None,
    ) -> None:
        # `stubbed` hears of a memory that was stored without vectors; `claims` is None where this process alone writes
        # the database.
        self._memories = memories
        self._versions = versions
        self._embeddings = embeddings
        self._embedding = embedding
        self._conflicts = conflicts
        self._clock = clock
        self._statistics = statistics
        self._stubbed = stubbed
        self._claims = claims
        self.locks = KeyedLocks()

    async def store(
        self,
        scope: Scope,
        changes: Sequence[Change],
        actor: str,
        numbers: DrawnVersions,
        now: datetime,
        floors: dict[Identity, Claimed],
    ) -> Committed:
        """Stores changes of distinct identities.

        The row in `memory` comes last, because nothing is visible before it: a crash leaves vectors, versions or marks
        that reads ignore and that sweeps remove.
        """
        if not changes:
            return Committed([], [])
        rows = [(change, next_version(scope, change, actor, numbers, now, floors)) for change in changes]
        model = (await self._embedding.served_model()).name
        deleted = [change.base for change in changes if change.base and change.base.tombstoned_at is not None]
        await both(
            self._embeddings.insert(
                model, [chunk for change, memory in rows for chunk in embedded_chunks(change, memory)]
            ),
            self._versions.insert([*deleted, *(memory for _, memory in rows)]),
        )
        lost: set[Identity] = set()
        if self._claims is not None:
            lost = await self._contested(scope, [memory for _, memory in rows])
        won = [(change, memory) for change, memory in rows if memory.identity not in lost]
        stored = _with_marks(won, now)
        await self._conflicts.put([mark for each in stored for mark in each.marks])
        if won:
            await self._memories.insert([(memory, change.text) for change, memory in won])
            self._statistics.written(scope, len(won))
            if any(is_stub(change.chunks) for change, _ in won):
                self._stubbed(scope)
        return Committed(stored, [change for change, memory in rows if memory.identity in lost])

    async def bury(self, scope: Scope, gone: Memory, revision: int) -> bool:
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

    async def claimed(
        self, scope: Scope, identities: Sequence[Identity], own: Sequence[int] = ()
    ) -> dict[Identity, Claimed]:
        """Returns what others claim of identities, versions of `own` left out."""
        return await self._versions.claimed(scope, identities, own, self._clock.now_ns() - _DEAD_AFTER_NS)

    @asynccontextmanager
    async def conditional(
        self, scope: Scope, identity: Identity, expected_version: int | None
    ) -> AsyncIterator[Hold | None]:
        """Holds the identity among all processes, for a write that depends on what it reads."""
        if expected_version is None or self._claims is None:
            yield None
            return
        async with self._claims.hold(claim_name("memory", *lock_key(scope, identity))) as hold:
            yield hold

    async def _contested(self, scope: Scope, written: Sequence[Memory]) -> set[Identity]:
        """Returns the identities whose revision, or a later one, another claims, after withdrawing these versions."""
        own = [memory.version for memory in written]
        others = await self.claimed(scope, [memory.identity for memory in written], own)
        lost = [
            memory
            for memory in written
            if memory.identity in others and others[memory.identity].revision >= memory.revision
        ]
        if lost:
            await self._versions.withdraw(lost)
        return {memory.identity for memory in lost}


def lock_key(scope: Scope, identity: Identity) -> tuple[str, ...]:
    """Returns the name of an identity's lock."""
    return scope.org, scope.namespace, identity.user_id, identity.session_id, identity.key


def _with_marks(rows: Sequence[tuple[Change, Memory]], now: datetime) -> list[Stored]:
    """Returns rows with a mark for each opponent; one that is no row of the store or of these has none."""
    versions = {memory.identity: memory.version for _, memory in rows}
    stored = []
    for change, memory in rows:
        marks = []
        for opponent in change.opponents:
            version = opponent.version or versions.get(opponent.identity)
            if version is None:
                continue
            own, theirs = (memory.identity, memory.version), (opponent.identity, version)
            newer, older = (theirs, own) if opponent.is_newer else (own, theirs)
            marks.append(
                Mark(
                    scope=memory.scope,
                    conflict_id=new_id(),
                    newer=newer[0],
                    newer_version=newer[1],
                    older=older[0],
                    older_version=older[1],
                    cosine=opponent.cosine,
                    ends_at=opponent.ends_at,
                    restore_to=opponent.restore_to,
                    actor=memory.actor,
                    created_at=now,
                    updated_at=now,
                    version=memory.version,
                )
            )
        stored.append(Stored(change, memory, tuple(marks)))
    return stored
