"""Vectors of profile sections and of procedures: made as these are written, and found again by what is near."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Sequence
from dataclasses import replace

from loom_common.call import Scope
from loom_common.clock import Clock, MonotonicVersions
from loom_common.errors import LoomError
from loom_memory.app.embedding import Chunk, EmbeddingPort, is_stub
from loom_memory.app.vector_tables import Staged
from loom_memory.domain.memory import Identity
from loom_memory.domain.vectors import Parts, VectorSpace
from loom_memory.store.item_vectors import TABLE, ItemVector, ItemVectorRepository
from loom_memory.store.rewrites import WaitingText
from loom_memory.store.versions import Placed

logger = logging.getLogger(__name__)


class ItemVectors:
    """The table `item_vectors`. A `VectorTable`; nothing of it is staged, as there is one row for each item.

    Only the first passage of a text that is longer than the model's window has a vector: labels and situations stand at
    the beginning, and the words of all of it are found.
    """

    name = TABLE.name

    def __init__(
        self, rows: ItemVectorRepository, embedding: EmbeddingPort, clock: Clock, notice: Callable[[Scope], None]
    ) -> None:
        # `notice` hears of a namespace that holds items without vectors.
        self._rows = rows
        self._embedding = embedding
        self._clock = clock
        self._versions = MonotonicVersions(clock)
        self._notice = notice

    async def write(self, scope: Scope, items: Sequence[ItemVector]) -> None:
        """Stores items as they are now, each with its vector; one that cannot be embedded waits for the worker."""
        rows = [replace(item, version=self._versions.next()) for item in items]
        live = [row for row in rows if row.tombstoned_at is None]
        vectors: dict[str, Sequence[float]] = {}
        model = ""
        if live:
            try:
                model = (await self._embedding.served_model()).name
                embedded = await self._embedding.embed_many([row.text for row in live])
                for row, chunks in zip(live, embedded, strict=True):
                    if not isinstance(chunks, LoomError) and chunks and not is_stub(chunks):
                        vectors[row.item_id] = chunks[0].vector
            except LoomError as error:
                logger.warning("items_without_vectors", extra={"items": len(live), "reason": error.reason.value})
        made = [
            replace(row, model=model, vector=vectors[row.item_id]) if row.item_id in vectors else row for row in rows
        ]
        await self._rows.put(scope, made)
        if len(vectors) < len(live):
            self._notice(scope)

    async def near(
        self,
        scope: Scope,
        plane: str,
        query: Sequence[float],
        *,
        users: Collection[str] | None,
        agents: Collection[str] | None,
        least: float,
        limit: int,
        within: str = "",
    ) -> dict[str, float]:
        """Returns the items nearest to a query's vector, with their cosine; `within` is what their names begin with."""
        served = await self._embedding.served_model()
        space = VectorSpace(served.name, served.dim)
        return await self._rows.nearest(
            scope, plane, space, query, users=users, agents=agents, least=least, limit=limit, within=within
        )

    async def similarities(
        self, scope: Scope, plane: str, query: Sequence[float], ids: Collection[str]
    ) -> dict[str, float]:
        """Returns the cosine of each item that has a vector."""
        if not ids:
            return {}
        served = await self._embedding.served_model()
        return await self._rows.similarities(scope, plane, VectorSpace(served.name, served.dim), query, ids)

    async def scopes(self, org: str, namespace: str, off: Collection[str]) -> list[Scope]:
        """See `VectorTable.scopes`."""
        return await self._rows.scopes(org, namespace, off)

    async def waiting(self, scope: Scope, space: VectorSpace, parts: Parts) -> int:
        """See `VectorTable.waiting`."""
        return await self._rows.lacking(scope, space) if Parts.VALUES in parts else 0

    async def batches(
        self, scope: Scope, space: VectorSpace, parts: Parts, size: int, *, staged: bool
    ) -> AsyncGenerator[list[WaitingText], None]:
        """See `VectorTable.batches`."""
        behind = ("", "")
        while Parts.VALUES in parts and (page := await self._rows.lacking_page(scope, space, behind, size)):
            yield [
                WaitingText(
                    scope, Identity(one.item_id, one.user_id, one.plane), one.version, one.text, actor=one.actor
                )
                for one in page
            ]
            behind = page[-1].plane, page[-1].item_id

    async def store(
        self, scope: Scope, space: VectorSpace, embedded: Sequence[tuple[WaitingText, list[Chunk]]], *, staged: bool
    ) -> int:
        """See `VectorTable.store`."""
        places = [(waiting.identity.session_id, waiting.identity.key) for waiting, _ in embedded]
        current = await self._rows.current(scope, places)
        rows = []
        for (waiting, chunks), place in zip(embedded, places, strict=True):
            row = current.get(place)
            if row is not None and row.version == waiting.version and chunks:
                version = self._versions.next(after=row.version)
                rows.append(replace(row, version=version, model=space.model, vector=chunks[0].vector))
        await self._rows.put(scope, rows)
        return len(rows)

    async def discard_staged(self, scope: Scope, space: VectorSpace, *, keep_width: bool) -> None:
        """See `VectorTable.discard_staged`."""

    async def staged(self, scope: Scope, space: VectorSpace) -> Staged:
        """See `VectorTable.staged`."""
        return Staged(0, 0, await self._rows.lacking(scope, space))

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
        """See `VectorTable.embed_in_database`: items are few and short, and wait for a call without it."""
