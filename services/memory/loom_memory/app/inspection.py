"""What is known of one memory beside its text: versions and vectors, conflicts, sources, what became of it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from loom_common.call import Scope, current
from loom_common.clock import Clock
from loom_common.errors import NotFound
from loom_memory.app.read import MemoryReader
from loom_memory.domain.conflict import Mark
from loom_memory.domain.memory import Filter, Identity, Memory, to_milliseconds
from loom_memory.store.conflicts import ConflictRepository
from loom_memory.store.copies import ModelVectors, VersionVectors
from loom_memory.store.memories import MemoryRepository
from loom_memory.store.signals import NO_SIGNALS, Signal, SignalRepository, SignalRow, Signals
from loom_memory.store.versions import VersionRepository

MAX_CONFLICTS: Final = 20
MAX_DERIVED: Final = 100


class ExposureCount(Protocol):
    """Counts in how many answers a memory was shown."""

    async def count(self, scope: Scope, identity: Identity, since: datetime) -> int:
        """Returns how often answers showed a memory at or after a time."""
        ...


@dataclass(frozen=True, slots=True)
class Inspection:
    """All that is known of one memory."""

    memory: Memory
    versions: int
    vectors: list[ModelVectors]
    conflicts: list[Mark]
    signals: Signals
    exposures: int


@dataclass(frozen=True, slots=True)
class Related:
    """A memory that another was made of, or that was made of it; `revision` is 0 where it is gone."""

    identity: Identity
    revision: int


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a memory comes from.

    Attributes:
        memory: Its current version.
        first_actor: Who wrote its first version.
        derived_from: What it was made of, in the order given.
        derived: What was made of it, by key.
    """

    memory: Memory
    first_actor: str
    derived_from: list[Related]
    derived: list[Related]


class MemoryInspector:
    """Answers `inspect`, `provenance` and `feedback`."""

    def __init__(
        self,
        reader: MemoryReader,
        memories: MemoryRepository,
        versions: VersionRepository,
        vectors: VersionVectors,
        conflicts: ConflictRepository,
        signals: SignalRepository,
        exposures: ExposureCount | None,
        *,
        clock: Clock,
    ) -> None:
        self._reader = reader
        self._memories = memories
        self._versions = versions
        self._vectors = vectors
        self._conflicts = conflicts
        self._signals = signals
        self._exposures = exposures
        self._clock = clock

    async def inspect(self, scope: Scope, identity: Identity) -> Inspection | None:
        """Returns what is known of a memory, or None where `get` finds none."""
        memory = await self._reader.get(scope, identity)
        if memory is None:
            return None
        since = memory.created_at
        versions, vectors, conflicts, signals, exposures = await asyncio.gather(
            self._versions.count(memory),
            self._vectors.by_model(scope, identity, memory.version),
            self._conflicts.of_memory(scope, identity, MAX_CONFLICTS),
            self._signals.counts(scope, [identity], since),
            self._exposed(scope, identity, since),
        )
        return Inspection(
            memory, versions, vectors, [mark for mark in conflicts if mark.created_at >= since],
            signals.get(identity, NO_SIGNALS), exposures,
        )  # fmt: skip

    async def provenance(self, scope: Scope, identity: Identity, visible: Filter) -> Provenance | None:
        """Returns where a memory comes from and what came of it, as far as the caller may read."""
        memory = await self._reader.get(scope, identity)
        if memory is None:
            return None
        sources = [name for key in memory.derived_from for name in _names(key, identity)]
        rows, derived, first = await asyncio.gather(
            self._memories.fetch(scope, visible, sources, self._clock.now()),
            self._versions.derived_from(scope, identity, visible, self._clock.now(), MAX_DERIVED),
            self._versions.first(memory),
        )
        found = [_related(key, identity, rows) for key in memory.derived_from]
        return Provenance(
            memory, memory.actor if first is None else first.actor, found,
            [Related(name, revision) for name, revision in derived],
        )  # fmt: skip

    async def feedback(self, scope: Scope, identity: Identity, verdict: Signal, actor: str) -> Signals:
        """Counts what a caller says of a memory, and returns the counts.

        Raises:
            NotFound: `get` finds no such memory.
        """
        memory = await self._reader.get(scope, identity)
        if memory is None:
            raise NotFound("There is no such memory.", detail={"key": identity.key})
        at = max(to_milliseconds(self._clock.now()), memory.created_at)
        await self._signals.insert([SignalRow(scope, identity, verdict, actor, at, request_id=current().request_id)])
        counts = await self._signals.counts(scope, [identity], memory.created_at)
        return counts.get(identity, NO_SIGNALS)

    async def _exposed(self, scope: Scope, identity: Identity, since: datetime) -> int:
        return 0 if self._exposures is None else await self._exposures.count(scope, identity, since)


def _names(key: str, by: Identity) -> Sequence[Identity]:
    """Returns what a key may name beside a memory: one of its own user and session, of its user, or of nobody."""
    return list(dict.fromkeys([by._replace(key=key), Identity(key, by.user_id), Identity(key)]))


def _related(key: str, by: Identity, rows: dict[Identity, Memory]) -> Related:
    names = _names(key, by)
    found = next((name for name in names if name in rows), names[0])
    return Related(found, rows[found].revision if found in rows else 0)
