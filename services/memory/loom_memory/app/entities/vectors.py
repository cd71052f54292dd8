"""The vectors of entities, as a change of the embedder sees them: each row is replaced in its place."""

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence

from loom_common.call import Scope
from loom_common.clock import Clock, MonotonicVersions
from loom_memory.app.embedding import Chunk
from loom_memory.app.vector_tables import Staged
from loom_memory.domain.memory import Identity
from loom_memory.domain.vectors import Parts, VectorSpace
from loom_memory.store.entities import VECTORS, EntityRepository, EntityVector
from loom_memory.store.rewrites import WaitingText
from loom_memory.store.versions import Placed


class EntityVectors:
    """The table `entity_vectors`. A `VectorTable`; nothing of it is staged, as there is one row for each entity."""

    name = VECTORS.name

    def __init__(self, entities: EntityRepository, clock: Clock) -> None:
        self._entities = entities
        self._versions = MonotonicVersions(clock)

    async def scopes(self, org: str, namespace: str, off: Collection[str]) -> list[Scope]:
        """See `VectorTable.scopes`."""
        return await self._entities.vector_scopes(org, namespace, off)

    async def waiting(self, scope: Scope, space: VectorSpace, parts: Parts) -> int:
        """See `VectorTable.waiting`."""
        return await self._entities.lacking(scope, space) if Parts.VALUES in parts else 0

    async def batches(
        self, scope: Scope, space: VectorSpace, parts: Parts, size: int, *, staged: bool
    ) -> AsyncGenerator[list[WaitingText], None]:
        """See `VectorTable.batches`."""
        behind = ("", "")
        while Parts.VALUES in parts and (page := await self._entities.lacking_page(scope, space, behind, size)):
            yield [
                WaitingText(scope, Identity(one.entity_id, one.user_id), one.version, one.text, actor=one.actor)
                for one in page
            ]
            behind = page[-1].user_id, page[-1].entity_id

    async def store(
        self, scope: Scope, space: VectorSpace, embedded: Sequence[tuple[WaitingText, list[Chunk]]], *, staged: bool
    ) -> int:
        """See `VectorTable.store`."""
        places = [(waiting.identity.user_id, waiting.identity.key) for waiting, _ in embedded]
        current = await self._entities.vector_versions(scope, places)
        kept = [
            (waiting, chunks)
            for (waiting, chunks), place in zip(embedded, places, strict=True)
            if current.get(place) == waiting.version and chunks
        ]
        rows = [
            EntityVector(
                waiting.identity.user_id,
                waiting.identity.key,
                waiting.text,
                waiting.actor,
                self._versions.next(after=waiting.version),
                space.model,
                chunks[0].vector,
            )
            for waiting, chunks in kept
        ]
        await self._entities.put_vectors(scope, rows)
        return len(rows)

    async def discard_staged(self, scope: Scope, space: VectorSpace, *, keep_width: bool) -> None:
        """See `VectorTable.discard_staged`."""

    async def staged(self, scope: Scope, space: VectorSpace) -> Staged:
        """See `VectorTable.staged`."""
        return Staged(0, 0, await self._entities.lacking(scope, space))

    async def publish(self, scope: Scope, space: VectorSpace) -> None:
        """See `VectorTable.publish`."""

    async def superseded(self, scope: Scope, space: VectorSpace) -> AsyncIterator[list[Placed]]:
        """See `VectorTable.superseded`: a row has one vector, so there are none."""
        none: tuple[list[Placed], ...] = ()
        for placed in none:
            yield placed

    async def remove_superseded(self, scope: Scope, space: VectorSpace, placed: Sequence[Placed]) -> None:
        """See `VectorTable.remove_superseded`."""

    async def embed_in_database(
        self, names: Scope, space: VectorSpace, parts: Parts, collection: str, off: Collection[str]
    ) -> None:
        """See `VectorTable.embed_in_database`: names are few and short, and wait for a call without it."""
