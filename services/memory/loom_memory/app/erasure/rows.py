"""What an erasure does in memory's own tables beside plain removal: hide rows, and replace texts in them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from loom_common.call import Scope
from loom_common.clock import Clock
from loom_common.erasure import Subject
from loom_common.together import both
from loom_memory.app.commit import Commits, lock_key
from loom_memory.app.embedding import EmbeddingPort, stub_chunks
from loom_memory.app.statistics import StatisticsCache
from loom_memory.app.write_versions import WriteVersions
from loom_memory.domain.analyzer import AnalyzedText, analyze_text
from loom_memory.domain.memory import Identity, Memory, to_milliseconds
from loom_memory.store.census import ERASER
from loom_memory.store.embeddings import EmbeddedChunk, EmbeddingRepository
from loom_memory.store.memories import MemoryRepository
from loom_memory.store.redactions import RedactionRepository, Replacement, identities_of
from loom_memory.store.removals import RemovalRepository
from loom_memory.store.versions import VersionRepository

# Rows that are hidden together. Source: chosen, as the sweep does.
_BATCH: Final = 2_000


class RowEraser:
    """Erases and rewrites rows of memories, beside the writers of this process."""

    def __init__(
        self,
        commits: Commits,
        memories: MemoryRepository,
        versions: VersionRepository,
        embeddings: EmbeddingRepository,
        removals: RemovalRepository,
        redactions: RedactionRepository,
        embedding: EmbeddingPort,
        *,
        clock: Clock,
        numbers: WriteVersions,
        statistics: StatisticsCache,
        stubbed: Callable[[Scope], None],
    ) -> None:
        self._locks = commits.locks
        self._memories = memories
        self._versions = versions
        self._embeddings = embeddings
        self._removals = removals
        self._redactions = redactions
        self._embedding = embedding
        self._clock = clock
        self._numbers = numbers
        self._statistics = statistics
        self._stubbed = stubbed

    async def erase(self, subject: Subject) -> None:
        """Hides a subject's rows at once from every read, and then removes them.

        A row that is written meanwhile is newer than the erasure and stays, also where it lies under a tombstone for a
        moment: the tombstones go last.
        """
        while rows := await self._removals.shown_before(subject, _BATCH):
            by_scope: dict[Scope, list[Identity]] = {}
            for row in rows:
                by_scope.setdefault(row.scope, []).append(row.identity)
            for scope, identities in by_scope.items():
                await self._hide(scope, identities, subject.upto)
        await self._removals.remove_hidden(subject)

    async def _hide(self, scope: Scope, identities: Sequence[Identity], upto: int) -> None:
        async with self._locks.all_of(lock_key(scope, identity) for identity in identities):
            now = to_milliseconds(self._clock.now())
            current = await self._memories.current(scope, identities)
            with self._numbers.write() as numbers:
                gone = [
                    memory.tombstone(ERASER, numbers.next(after=memory.version), now)
                    for memory in current.values()
                    if memory.version <= upto
                ]
                await self._memories.insert([(memory, AnalyzedText([], 0)) for memory in gone])
        self._statistics.written(scope, len(gone))

    async def redact(self, subject: Subject, gone: Replacement) -> None:
        """Replaces a text in every version of named memories; the vectors of what is shown are made anew."""
        for scope, identity in identities_of(subject):
            shown = await self._redact_shown(scope, identity, subject.upto, gone)
            if shown is not None:
                await self._redactions.remove_older(scope, identity, shown.version)
        await self._redactions.rewrite_versions(subject, gone)

    async def remaining(self, subject: Subject, gone: Replacement) -> dict[str, int]:
        """Counts what is left of a text in named memories, by table."""
        return await self._redactions.remaining(subject, gone)

    async def _redact_shown(self, scope: Scope, identity: Identity, upto: int, gone: Replacement) -> Memory | None:
        """Stores the current version anew without the text, and returns what is current now."""
        async with self._locks.all_of([lock_key(scope, identity)]):
            base = (await self._memories.current(scope, [identity])).get(identity)
            if base is None or base.version > upto or base.tombstoned_at is not None:
                return base
            redacted = await self._redactions.redacted(base, gone)
            if redacted is base:
                return base
            if not redacted.content.value.strip():
                # No memory is empty: what is left of it is the mark of what was there.
                redacted = replace(redacted, content=replace(redacted.content, value=gone.by or "[redacted]"))
            model = (await self._embedding.served_model()).name
            with self._numbers.write() as numbers:
                # The same version for callers, under a new number: whoever keeps vectors by number drops the old ones.
                redacted = replace(redacted, version=numbers.next(after=base.version))
                stub = [
                    EmbeddedChunk(
                        scope, identity, redacted.version, 0, chunk.start_offset, chunk.end_offset, chunk.vector,
                        invalid_at=redacted.invalid_at, attestation=redacted.attestation,
                    )
                    for chunk in stub_chunks(redacted.content.value)
                ]  # fmt: skip
                await both(self._embeddings.insert(model, stub), self._versions.insert([redacted]))
                await self._memories.insert([(redacted, analyze_text(redacted.content.value))])
        self._statistics.written(scope, 1)
        self._stubbed(scope)
        return redacted
