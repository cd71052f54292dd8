"""Storing many memories at once: the order of a write and its rules, with a few statements for thousands of rows.

What one call stores is looked up, embedded, claimed and inserted together. Everything that makes a single write safe
holds: the locks of the writer, vectors and versions before the row that shows them, and, where other processes write
the same database, the claim of each revision. What another process contests is left to the writer, one by one.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Final

from loom_common.call import Scope
from loom_common.call import current as current_call
from loom_common.clock import Clock
from loom_common.errors import Conflict, LoomError
from loom_common.together import both
from loom_memory.app.commit import Commits, lock_key
from loom_memory.app.drafts import Draft, Found, Outcome, Written, decide
from loom_memory.app.embedding import Chunk, is_stub, numbered
from loom_memory.app.statistics import StatisticsCache
from loom_memory.app.write import MemoryWriter
from loom_memory.app.write_versions import DrawnVersions, WriteVersions
from loom_memory.domain.analyzer import AnalyzedText, analyze_text
from loom_memory.domain.memory import Identity, Memory, Sensitivity, to_milliseconds
from loom_memory.domain.records import Record, RecordVersion
from loom_memory.domain.waves import waves
from loom_memory.store.embeddings import EmbeddedChunk, EmbeddingRepository
from loom_memory.store.memories import MemoryRepository
from loom_memory.store.versions import VersionRepository

EXISTS: Final = "exists"
"""Why a line was not stored: its key is there with other content, and was to be left as it is."""

EXPIRED: Final = "expired"
"""Why a line was not stored: its time is over."""


@dataclass(frozen=True, slots=True)
class BulkItem:
    """One record to store, with what its text was made into.

    Attributes:
        record: The memory.
        draft: Its current version as the namespace lets it be written.
        earlier: Its earlier versions that the namespace lets be written, each beside what the record says of it.
        chunks: Its vectors, or a stub, or why it has none.
        text: The words of its value.
    """

    record: Record
    draft: Draft
    earlier: tuple[tuple[RecordVersion, Draft], ...]
    chunks: list[Chunk] | LoomError
    text: AnalyzedText


@dataclass(frozen=True, slots=True)
class BulkPolicy:
    """How records are stored.

    Attributes:
        actor: Who writes.
        keeps_provenance: Whether who wrote a record is kept as it says.
        skips_existing: Whether a key that is there is left as it is.
        is_dry: Whether nothing is stored.
    """

    actor: str
    keeps_provenance: bool = False
    skips_existing: bool = False
    is_dry: bool = False


@dataclass(frozen=True, slots=True)
class _Rows:
    """What one record becomes: its present version, which comes last, and those before it."""

    place: int
    item: BulkItem
    chunks: list[Chunk]
    current: Memory
    earlier: tuple[Memory, ...]
    mark: Memory | None
    """The tombstone that the record follows, which ends the life before it in the versions too."""


class BulkWriter:
    """Stores records in batches."""

    def __init__(
        self,
        writer: MemoryWriter,
        commits: Commits,
        memories: MemoryRepository,
        versions: VersionRepository,
        embeddings: EmbeddingRepository,
        *,
        clock: Clock,
        numbers: WriteVersions,
        statistics: StatisticsCache,
        stubbed: Callable[[Scope], None],
        is_exclusive: bool,
    ) -> None:
        # `is_exclusive` says that this process alone writes the database, so that locks order all writers.
        self._writer = writer
        self._commits = commits
        self._memories = memories
        self._versions = versions
        self._embeddings = embeddings
        self._clock = clock
        self._numbers = numbers
        self._statistics = statistics
        self._stubbed = stubbed
        self._is_exclusive = is_exclusive

    async def store(self, scope: Scope, items: Sequence[BulkItem], model: str, policy: BulkPolicy) -> list[Outcome]:
        """Stores records and returns what became of each, in order; those of one identity keep theirs.

        Args:
            scope: Namespace to write.
            items: What is stored.
            model: Model of their vectors.
            policy: How.

        Raises:
            LoomError: Nothing of this batch is visible, or all of what came before the failure.
        """
        outcomes: dict[int, Outcome] = {}
        identities = [item.draft.identity for item in items]
        async with self._commits.locks.all_of(lock_key(scope, identity) for identity in identities):
            for places in waves(identities):
                wave = {place: items[place] for place in places}
                with self._numbers.write() as numbers:
                    contested = await self._store_wave(scope, wave, model, policy, numbers, outcomes)
                if contested:
                    break
            else:
                return [outcomes[place] for place in range(len(items))]
        # Another process writes the same keys: whatever is left goes the way of single writes, which settle that.
        rest = {place: item for place, item in enumerate(items) if place not in outcomes}
        for place, item in rest.items():
            draft = replace(item.draft, expected_version=0) if policy.skips_existing else item.draft
            try:
                outcomes[place] = await self._writer.set_one(scope, draft, policy.actor)
            except LoomError as error:
                outcomes[place] = error
                if isinstance(error, Conflict) and policy.skips_existing:
                    outcomes[place] = Written(draft.identity, 0, False, EXISTS, None, found=draft.found)
        return [outcomes[place] for place in range(len(items))]

    async def _store_wave(
        self,
        scope: Scope,
        wave: dict[int, BulkItem],
        model: str,
        policy: BulkPolicy,
        numbers: DrawnVersions,
        outcomes: dict[int, Outcome],
    ) -> bool:
        """Stores records of distinct identities, and says whether another process contested one of them."""
        now = to_milliseconds(self._clock.now())
        current = await self._memories.current(scope, [item.draft.identity for item in wave.values()])
        rows: list[_Rows] = []
        for place, item in wave.items():
            base = current.get(item.draft.identity)
            outcome = _settled(item, base, policy, now)
            if outcome is not None:
                outcomes[place] = outcome
            elif not isinstance(item.chunks, LoomError):
                rows.append(_rows(place, item, item.chunks, scope, base, policy, numbers, now))
        if policy.is_dry:
            outcomes.update({row.place: _written(row) for row in rows})
            return False
        return bool(rows) and await self._commit(scope, rows, model, outcomes)

    async def _commit(self, scope: Scope, rows: Sequence[_Rows], model: str, outcomes: dict[int, Outcome]) -> bool:
        """Stores rows in the order in which a crash leaves nothing half visible."""
        marks = [row.mark for row in rows if row.mark is not None]
        await both(
            self._embeddings.insert(model, [chunk for row in rows for chunk in _embedded(row)]),
            self._versions.insert([*marks, *(memory for row in rows for memory in (*row.earlier, row.current))]),
        )
        contested: set[Identity] = set()
        if not self._is_exclusive:
            contested = await self._contested(scope, rows)
        won = [row for row in rows if row.current.identity not in contested]
        if won:
            await self._memories.insert([(row.current, row.item.text) for row in won])
            self._statistics.written(scope, len(won))
            if any(is_stub(row.chunks) for row in won):
                self._stubbed(scope)
        outcomes.update({row.place: _written(row) for row in won})
        return bool(contested)

    async def _contested(self, scope: Scope, rows: Sequence[_Rows]) -> set[Identity]:
        """Returns the identities whose revision another process claims too, after withdrawing these versions."""
        written = [memory for row in rows for memory in (*row.earlier, row.current)]
        others = await self._commits.claimed(
            scope, [row.current.identity for row in rows], [memory.version for memory in written]
        )
        lost = {
            row.current.identity
            for row in rows
            if row.current.identity in others and others[row.current.identity].revision >= row.current.revision
        }
        if lost:
            await self._versions.withdraw([memory for memory in written if memory.identity in lost])
        return lost


async def analysed(values: Sequence[str]) -> list[AnalyzedText]:
    """Returns the words of each value; made beside the event loop, which they would hold for long."""
    return await asyncio.to_thread(lambda: [analyze_text(value) for value in values])


def _settled(item: BulkItem, base: Memory | None, policy: BulkPolicy, now: datetime) -> Outcome | None:
    """Returns the outcome of a record that needs no write, else None."""
    draft = item.draft
    expires_at = draft.content.expires_at
    if expires_at is not None and expires_at <= now:
        return Written(draft.identity, 0, False, EXPIRED, None, message="", found=draft.found)
    outcome = decide(draft, base, now)
    if outcome is not None:
        return outcome
    if base is not None and base.is_visible(now) and policy.skips_existing:
        return Written(base.identity, base.revision, False, EXISTS, base.updated_at, found=draft.found)
    return item.chunks if isinstance(item.chunks, LoomError) else None


def _rows(
    place: int,
    item: BulkItem,
    chunks: list[Chunk],
    scope: Scope,
    base: Memory | None,
    policy: BulkPolicy,
    numbers: DrawnVersions,
    now: datetime,
) -> _Rows:
    record = item.record
    if base is not None:
        # What is there has its own history and times; the record is a new version of it.
        version = replace(record.current, created_at=base.created_at if base.is_visible(now) else now, updated_at=now)
        memory = _memory(scope, item.draft, version, base.revision + 1, policy, now)
        memory = replace(memory, version=numbers.next(after=base.version))
        return _Rows(place, item, chunks, memory, (), base if base.tombstoned_at is not None else None)
    versions = [*item.earlier, (record.current, item.draft)]
    revisions = _revisions([version.revision for version, _ in versions])
    memories = [
        replace(_memory(scope, draft, version, revision, policy, now), version=numbers.next(after=0))
        for (version, draft), revision in zip(versions, revisions, strict=True)
    ]
    return _Rows(place, item, chunks, memories[-1], tuple(memories[:-1]), None)


def _memory(
    scope: Scope, draft: Draft, version: RecordVersion, revision: int, policy: BulkPolicy, now: datetime
) -> Memory:
    updated_at = min(version.updated_at or now, now)
    stated, found = draft.stated, draft.found
    if policy.keeps_provenance and not found.recogniser:
        # Nobody looked here: what was found where it comes from stands.
        found = Found(version.sensitivity_found, Sensitivity(version.sensitivity), version.recogniser)
    labels = found.labels or (version.labels if policy.keeps_provenance else ())
    return Memory(
        scope=scope,
        identity=draft.identity,
        content=draft.content,
        actor=version.actor if policy.keeps_provenance and version.actor else policy.actor,
        revision=revision,
        version=0,
        created_at=min(version.created_at or updated_at, updated_at),
        updated_at=updated_at,
        sensitivity=max(Sensitivity(stated.sensitivity), found.sensitivity, key=lambda each: each.weight).value,
        valid_at=stated.valid_at,
        invalid_at=stated.invalid_at,
        attestation=stated.attestation,
        sensitivity_stated=stated.sensitivity,
        sensitivity_found=found.names,
        recogniser=found.recogniser,
        labels=labels,
        derived_from=stated.derived_from,
        request_id=current_call().request_id,
    )


def _revisions(told: Sequence[int]) -> list[int]:
    """Returns the revisions of versions: those that are told where they rise, else 1, 2, 3 and so on."""
    rising = told[0] > 0 and all(first < second for first, second in pairwise(told))
    return list(told) if rising else list(range(1, len(told) + 1))


def _embedded(row: _Rows) -> list[EmbeddedChunk]:
    memory = row.current
    return [
        EmbeddedChunk(
            scope=memory.scope,
            identity=memory.identity,
            version=memory.version,
            chunk=number,
            start_offset=chunk.start_offset,
            end_offset=chunk.end_offset,
            vector=chunk.vector,
            invalid_at=memory.invalid_at,
            attestation=memory.attestation,
        )
        for number, chunk in numbered(row.chunks)
    ]


def _written(row: _Rows) -> Written:
    memory = row.current
    return Written(memory.identity, memory.revision, True, "", memory.updated_at)
