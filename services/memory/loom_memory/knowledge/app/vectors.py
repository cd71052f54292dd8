"""The vectors of passages, as a change of the embedder sees them."""

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse
from loom_memory.app.embedding import Chunk
from loom_memory.app.vector_tables import Staged
from loom_memory.domain.memory import Identity
from loom_memory.domain.vectors import Parts, VectorSpace
from loom_memory.knowledge.domain.chunks import ChunkPlace
from loom_memory.knowledge.domain.preparation import embedded_text
from loom_memory.knowledge.store.documents import DocumentRepository
from loom_memory.knowledge.store.embeddings import TABLE, ChunkVectors, KnowledgeEmbeddingRepository
from loom_memory.knowledge.store.in_database import embed_in_database
from loom_memory.knowledge.store.rewrites import FIRST, KnowledgeRewrites, WaitingChunk
from loom_memory.store.rewrites import WaitingText
from loom_memory.store.versions import Placed

_BATCH = 2_000


class KnowledgeVectors:
    """The vectors of documents. A `VectorTable`.

    A passage goes there under its document's URI as the key and, where a memory has its session, its own number. It has
    no parts of a key, so that a run over keys alone passes it over.
    """

    name = TABLE.name

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._documents = DocumentRepository(ch)
        self._rewrites = KnowledgeRewrites(ch)
        self._embeddings = KnowledgeEmbeddingRepository(ch)

    async def scopes(self, org: str, namespace: str, off: Collection[str]) -> list[Scope]:
        """See `VectorTable.scopes`."""
        return await self._documents.scopes(org, namespace, sorted(off))

    async def waiting(self, scope: Scope, space: VectorSpace, parts: Parts) -> int:
        """See `VectorTable.waiting`."""
        return await self._rewrites.waiting(scope, space) if Parts.VALUES in parts else 0

    async def batches(
        self, scope: Scope, space: VectorSpace, parts: Parts, size: int, *, staged: bool
    ) -> AsyncGenerator[list[WaitingText], None]:
        """See `VectorTable.batches`."""
        if Parts.VALUES not in parts:
            return
        behind = FIRST
        while found := await self._rewrites.page(scope, behind, space, size, staged=staged):
            yield [_waiting(scope, chunk) for chunk in found]
            behind = found[-1].place

    async def store(
        self, scope: Scope, space: VectorSpace, embedded: Sequence[tuple[WaitingText, list[Chunk]]], *, staged: bool
    ) -> int:
        """See `VectorTable.store`."""
        by_place = {_place(waiting.placed): chunks for waiting, chunks in embedded}
        current = await self._rewrites.current(scope, list(by_place))
        rows = [
            ChunkVectors(place, [chunk.vector for chunk in chunks])
            for place, chunks in by_place.items()
            if place in current
        ]
        if rows:
            await self._embeddings.insert(scope, space.staged if staged else space.model, rows)
        return len(rows)

    async def discard_staged(self, scope: Scope, space: VectorSpace, *, keep_width: bool) -> None:
        """See `VectorTable.discard_staged`."""
        await self._rewrites.discard_staged(scope, space, keep_width=keep_width)

    async def staged(self, scope: Scope, space: VectorSpace) -> Staged:
        """See `VectorTable.staged`."""
        versions, faulty = await self._rewrites.faulty(scope, space)
        return Staged(versions, faulty, await self._rewrites.waiting(scope, space, staged=True))

    async def publish(self, scope: Scope, space: VectorSpace) -> None:
        """See `VectorTable.publish`."""
        await self._rewrites.publish(scope, space)
        await self._rewrites.discard_staged(scope, space)

    async def superseded(self, scope: Scope, space: VectorSpace) -> AsyncIterator[list[Placed]]:
        """See `VectorTable.superseded`."""
        behind = FIRST
        while found := await self._rewrites.superseded(scope, behind, space, _BATCH):
            yield [(_identity(place), place.version) for place in found]
            behind = found[-1]

    async def remove_superseded(self, scope: Scope, space: VectorSpace, placed: Sequence[Placed]) -> None:
        """See `VectorTable.remove_superseded`."""
        await self._rewrites.remove_superseded(scope, [_place(each) for each in placed], space)

    async def embed_in_database(
        self, names: Scope, space: VectorSpace, parts: Parts, collection: str, off: Collection[str]
    ) -> None:
        """See `VectorTable.embed_in_database`."""
        if Parts.VALUES in parts:
            await embed_in_database(self._ch, names, space, collection, off)


def _waiting(scope: Scope, chunk: WaitingChunk) -> WaitingText:
    return WaitingText(
        scope,
        _identity(chunk.place),
        chunk.place.version,
        embedded_text(chunk.breadcrumb, chunk.text),
        actor=chunk.actor,
    )


def _identity(place: ChunkPlace) -> Identity:
    return Identity(place.source_uri, "", str(place.chunk))


def _place(placed: Placed) -> ChunkPlace:
    identity, version = placed
    return ChunkPlace(identity.key, version, int(identity.session_id))
