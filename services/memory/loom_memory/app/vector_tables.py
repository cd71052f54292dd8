"""Tables that hold vectors of stored texts, as a change of the embedder sees them.

Every table with a column `embedding_model` has its `VectorTable` in the service's wiring: a table that had none would
keep vectors that no search compares any more.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse
from loom_common.clock import Clock
from loom_memory.app.batches import chunks_of
from loom_memory.app.embedding import Chunk
from loom_memory.domain.memory import Filter, Identity
from loom_memory.domain.vectors import Parts, VectorSpace
from loom_memory.store.columns import KeyRange
from loom_memory.store.embeddings import TABLE, EmbeddedChunk, EmbeddingRepository
from loom_memory.store.in_database import embed_in_database
from loom_memory.store.rewrites import VectorRewrites, WaitingText
from loom_memory.store.versions import Placed, VersionRepository

# Versions whose keys one statement holds in memory. Source: chosen, as the sweep does; some 10 MB.
_RANGE: Final = 50_000
# Versions that one statement names.
_BATCH: Final = 2_000
_FIRST: Final = Identity("")


@dataclass(frozen=True, slots=True)
class Staged:
    """What lies staged of a namespace: versions, those of them that are faulty, and texts that have none yet."""

    versions: int
    faulty: int
    missing: int


class VectorTable(Protocol):
    """One table of vectors. Of a namespace; `staged` counts staged vectors as written, or writes such."""

    name: str

    async def scopes(self, org: str, namespace: str, off: Collection[str]) -> list[Scope]:
        """Returns the namespaces that hold texts, all or those of the names that are given, but for those of `off`."""
        ...

    async def waiting(self, scope: Scope, space: VectorSpace, parts: Parts) -> int:
        """Counts texts that lack vectors of the space for some of these parts."""
        ...

    def batches(
        self, scope: Scope, space: VectorSpace, parts: Parts, size: int, *, staged: bool
    ) -> AsyncGenerator[list[WaitingText], None]:
        """Yields the texts that wait, each once."""
        ...

    async def store(
        self, scope: Scope, space: VectorSpace, embedded: Sequence[tuple[WaitingText, list[Chunk]]], *, staged: bool
    ) -> int:
        """Stores vectors of texts that are still as they were, and returns how many those are."""
        ...

    async def discard_staged(self, scope: Scope, space: VectorSpace, *, keep_width: bool) -> None:
        """Removes what is staged, or what of it is of another width."""
        ...

    async def staged(self, scope: Scope, space: VectorSpace) -> Staged:
        """Examines what is staged."""
        ...

    async def publish(self, scope: Scope, space: VectorSpace) -> None:
        """Shows what is staged and removes it from where it was."""
        ...

    def superseded(self, scope: Scope, space: VectorSpace) -> AsyncIterator[list[Placed]]:
        """Yields what has vectors of the space and others beside them."""
        ...

    async def remove_superseded(self, scope: Scope, space: VectorSpace, placed: Sequence[Placed]) -> None:
        """Removes the others of these."""
        ...

    async def embed_in_database(
        self, names: Scope, space: VectorSpace, parts: Parts, collection: str, off: Collection[str]
    ) -> None:
        """Lets the database embed what waits, of the named organisation and namespace; an empty name is all.

        What is of the organisations `off` waits on.
        """
        ...


class MemoryVectors:
    """The vectors of memories: a row per chunk and version, so that those of several models lie side by side."""

    name = TABLE.name

    def __init__(
        self,
        ch: ClickHouse,
        rewrites: VectorRewrites,
        embeddings: EmbeddingRepository,
        versions: VersionRepository,
        clock: Clock,
    ) -> None:
        self._ch = ch
        self._rewrites = rewrites
        self._embeddings = embeddings
        self._versions = versions
        self._clock = clock

    async def scopes(self, org: str, namespace: str, off: Collection[str]) -> list[Scope]:
        """See `VectorTable.scopes`."""
        return await self._rewrites.scopes(org, namespace, off)

    async def waiting(self, scope: Scope, space: VectorSpace, parts: Parts) -> int:
        """See `VectorTable.waiting`."""
        return await self._rewrites.waiting(scope, Filter(), self._now(), space, parts)

    async def batches(
        self, scope: Scope, space: VectorSpace, parts: Parts, size: int, *, staged: bool
    ) -> AsyncGenerator[list[WaitingText], None]:
        """See `VectorTable.batches`."""
        async for keys in key_ranges(self._versions, scope):
            behind = _FIRST
            while batch := await self._page(keys, behind, space, parts, size, staged=staged):
                yield batch
                behind = batch[-1].identity

    async def store(
        self, scope: Scope, space: VectorSpace, embedded: Sequence[tuple[WaitingText, list[Chunk]]], *, staged: bool
    ) -> int:
        """See `VectorTable.store`.

        A text that is written or deleted right after the look gets vectors of a version that is past; no read shows
        them, and the sweep removes them.
        """
        current = await self._rewrites.current(scope, [waiting.identity for waiting, _ in embedded])
        kept = [(waiting, chunks) for waiting, chunks in embedded if waiting.placed in current]
        # A value that waits for nothing is shown already, or staged by an earlier run: its key goes where it is.
        keys_alone = [waiting.identity for waiting, _ in kept if Parts.VALUES not in waiting.waits]
        shown = await self._rewrites.shown(scope, space, keys_alone) if staged else set()
        rows: dict[str, list[EmbeddedChunk]] = {}
        for waiting, chunks in kept:
            is_aside = staged and waiting.placed not in shown
            rows.setdefault(space.staged if is_aside else space.model, []).extend(chunks_of(waiting, chunks))
        for model, chunk_rows in rows.items():
            await self._embeddings.insert(model, chunk_rows)
        return len(kept)

    async def discard_staged(self, scope: Scope, space: VectorSpace, *, keep_width: bool) -> None:
        """See `VectorTable.discard_staged`."""
        await self._rewrites.discard_staged(scope, space, keep_width=keep_width)

    async def staged(self, scope: Scope, space: VectorSpace) -> Staged:
        """See `VectorTable.staged`."""
        versions = faulty = 0
        async for keys in key_ranges(self._versions, scope):
            found = await self._rewrites.faulty(keys, space)
            versions, faulty = versions + found[0], faulty + found[1]
        missing = await self._rewrites.waiting(scope, Filter(), self._now(), space, Parts.ALL, staged=True)
        return Staged(versions, faulty, missing)

    async def publish(self, scope: Scope, space: VectorSpace) -> None:
        """See `VectorTable.publish`."""
        async for keys in key_ranges(self._versions, scope):
            behind = _FIRST
            while ready := await self._rewrites.ready(keys, behind, space, _BATCH):
                await self._rewrites.publish(scope, ready, space)
                behind = ready[-1][0]
        await self._rewrites.discard_staged(scope, space)

    async def superseded(self, scope: Scope, space: VectorSpace) -> AsyncIterator[list[Placed]]:
        """See `VectorTable.superseded`."""
        async for keys in key_ranges(self._versions, scope):
            behind = _FIRST
            while batch := await self._rewrites.superseded(keys, behind, space, _BATCH):
                yield batch
                behind = batch[-1][0]

    async def remove_superseded(self, scope: Scope, space: VectorSpace, placed: Sequence[Placed]) -> None:
        """See `VectorTable.remove_superseded`."""
        await self._rewrites.remove_superseded(scope, placed, space)

    async def embed_in_database(
        self, names: Scope, space: VectorSpace, parts: Parts, collection: str, off: Collection[str]
    ) -> None:
        """See `VectorTable.embed_in_database`."""
        await embed_in_database(self._ch, names, space, parts, collection, self._now(), off)

    async def _page(
        self, keys: KeyRange, behind: Identity, space: VectorSpace, parts: Parts, size: int, *, staged: bool
    ) -> list[WaitingText]:
        return await self._rewrites.page(keys, behind, self._now(), space, size, parts, staged=staged)

    def _now(self) -> datetime:
        return self._clock.now()


async def key_ranges(versions: VersionRepository, scope: Scope, size: int = _RANGE) -> AsyncIterator[KeyRange]:
    """Yields ranges that together hold every key of a namespace."""
    keys = await versions.range_after(scope, "", size)
    while keys.upto:
        yield keys
        keys = await versions.range_after(scope, keys.upto, size)
    yield keys
