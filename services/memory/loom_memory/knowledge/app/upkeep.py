"""What runs beside the calls: vectors that are missing, and rows that nothing shows."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from contextlib import aclosing
from typing import Final

from loom_common.attribution import Attribution
from loom_common.call import Scope
from loom_common.clickhouse import tagged
from loom_common.clock import Clock
from loom_common.errors import LoomError
from loom_common.features import Feature
from loom_common.leases import Lease, LeaseLost, Leases
from loom_common.model_calls.held import HOLDS
from loom_common.workers import Workers
from loom_memory.app.batches import Pass, StoredTexts
from loom_memory.app.embedding import Chunk
from loom_memory.app.holds import WriterHolds
from loom_memory.app.reembedding import LEASE as VECTORS_LEASE
from loom_memory.app.reembedding import LEASE_S
from loom_memory.app.vector_tables import VectorTable
from loom_memory.domain.vectors import Parts, VectorSpace, retry_after_s
from loom_memory.knowledge.store.documents import DocumentRepository
from loom_memory.knowledge.store.leftovers import LeftoverRepository
from loom_memory.store.rewrites import WaitingText
from loom_memory.store.versions import Placed

logger = logging.getLogger(__name__)

EMBEDDING: Final = Feature.KNOWLEDGE_EMBEDDING.value
SWEEP: Final = "knowledge.sweep"
DELETIONS: Final = "knowledge_deletions"

# Source: chosen, as for memories. A namespace that this process left passages in is looked at within these seconds,
# every other one by the next look over all.
_LOOK_S: Final = 10.0
_LOOK_OVER_ALL_S: Final = 600.0
_BATCH: Final = 64
_STALE_BATCH: Final = 2_000
_GATHER_S: Final = 1.0
# A write that takes longer than this from its first row to its last loses them. Its rows are all that it waits for.
GRACE_NS: Final = 600_000_000_000


class MissingVectors:
    """Makes the vectors that a document was stored without, in whichever process holds the lease."""

    def __init__(
        self,
        vectors: VectorTable,
        texts: StoredTexts,
        holds: WriterHolds,
        leases: Leases,
        clock: Clock,
    ) -> None:
        self._vectors = vectors
        self._texts = texts
        self._holds = holds
        self._leases = leases
        self._clock = clock
        self._noticed: set[Scope] = set()
        # Passages that could not be embedded: how often, and until when they rest.
        self._resting: dict[tuple[Scope, Placed], tuple[int, float]] = {}

    def notice(self, scope: Scope) -> None:
        """Hears that a namespace holds passages without vectors."""
        self._noticed.add(scope)

    async def run(self) -> None:
        """Works until it is cancelled."""
        looked_s = float("-inf")
        while True:
            with tagged(EMBEDDING):
                try:
                    now = self._clock.monotonic_s()
                    if now - looked_s >= _LOOK_OVER_ALL_S:
                        self._noticed.update(await self._vectors.scopes("", "", ()))
                        looked_s = now
                    if self._noticed:
                        await self.take_turn()
                except (LoomError, LeaseLost) as error:
                    logger.warning("knowledge_embedding_interrupted", extra={"reason": str(error)})
            await asyncio.sleep(_LOOK_S)

    async def take_turn(self) -> int:
        """Embeds what waits in the noticed namespaces, and returns how many passages that were.

        Raises:
            LeaseLost: Another process does it now.
            LoomError: The store or embedding did not answer.
        """
        space = await self._texts.space()
        off = set(self._holds.now().orgs)
        waiting = [
            scope
            for scope in sorted(self._noticed, key=lambda scope: (scope.org, scope.namespace))
            if scope.org not in off and await self._vectors.waiting(scope, space, Parts.VALUES)
        ]
        self._noticed = {scope for scope in self._noticed if scope.org in off}
        if not waiting:
            return 0
        async with self._leases.taken(VECTORS_LEASE, LEASE_S, renewed=True) as lease:
            if lease is None:
                self._noticed.update(waiting)
                return 0
            async with self._texts.passing() as texts:
                return sum([await self._embed_scope(scope, space, lease, texts) for scope in waiting])

    async def _embed_scope(self, scope: Scope, space: VectorSpace, lease: Lease, texts: Pass) -> int:
        count = 0
        async with aclosing(self._vectors.batches(scope, space, Parts.VALUES, _BATCH, staged=False)) as batches:
            async for batch in batches:
                free = [waiting for waiting in batch if not self._rests(waiting)]
                async for attribution, group in texts.groups(free, lambda waiting: waiting):
                    await lease.check()
                    count += await self._embed(attribution, space, group, texts)
        return count

    async def _embed(
        self, attribution: Attribution, space: VectorSpace, group: Sequence[WaitingText], texts: Pass
    ) -> int:
        embedded: list[tuple[WaitingText, list[Chunk]]] = []
        for waiting, chunks in zip(group, await texts.embed(attribution, space, group), strict=True):
            if not isinstance(chunks, LoomError):
                embedded.append((waiting, chunks))
                continue
            if isinstance(chunks, HOLDS):
                self._holds.hold(waiting, chunks)
            else:
                self._rest(waiting)
            self._noticed.add(waiting.scope)
        if not embedded:
            return 0
        return await self._vectors.store(group[0].scope, space, embedded, staged=False)

    def _rests(self, waiting: WaitingText) -> bool:
        if self._holds.reason(waiting) is not None:
            self._noticed.add(waiting.scope)
            return True
        held = self._resting.get((waiting.scope, waiting.placed))
        if held is not None and held[1] > self._clock.monotonic_s():
            self._noticed.add(waiting.scope)
            return True
        return False

    def _rest(self, waiting: WaitingText) -> None:
        key = waiting.scope, waiting.placed
        attempts = self._resting.get(key, (0, 0.0))[0] + 1
        self._resting[key] = attempts, self._clock.monotonic_s() + retry_after_s(attempts)


class Leftovers:
    """Removes what superseded, interrupted and deleted versions leave; reads ignore all of it meanwhile."""

    def __init__(
        self,
        leftovers: LeftoverRepository,
        documents: DocumentRepository,
        leases: Leases,
        workers: Workers,
        clock: Clock,
        *,
        interval_s: float,
        grace_ns: int = GRACE_NS,
    ) -> None:
        self._leftovers = leftovers
        self._documents = documents
        self._leases = leases
        self._workers = workers
        self._clock = clock
        self._interval_s = interval_s
        self._grace_ns = grace_ns
        self._deleted: dict[Scope, dict[str, int]] = defaultdict(dict)
        self._task: asyncio.Task[None] | None = None

    def deleted(self, scope: Scope, source_uri: str, version: int) -> None:
        """Takes a deletion and returns at once: many of them are one rewrite of the store."""
        self._deleted[scope][source_uri] = version
        if self._task is None or self._task.done():
            self._task = self._workers.start(DELETIONS, self._forget())

    async def flush(self) -> None:
        """Removes what was deleted."""
        waiting, self._deleted = self._deleted, defaultdict(dict)
        with tagged(DELETIONS):
            for scope, deleted in waiting.items():
                try:
                    await self._leftovers.forget(scope, deleted)
                except LoomError:
                    # The sweep finds them.
                    logger.warning("deleted_documents_not_removed", extra={"documents": len(deleted)})

    async def close(self) -> None:
        """Removes what waits and stops."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        await self.flush()

    async def run(self) -> None:
        """Sweeps until it is cancelled."""
        while True:
            with tagged(SWEEP):
                try:
                    async with self._leases.taken(SWEEP, LEASE_S, renewed=True) as lease:
                        if lease is not None:
                            await self.sweep(lease)
                except (LoomError, LeaseLost):
                    logger.warning("knowledge_sweep_interrupted", exc_info=True)
            await asyncio.sleep(self._interval_s)

    async def sweep(self, lease: Lease) -> int:
        """Removes every version that is not shown and old enough, and returns how many those were.

        Raises:
            LeaseLost: Another process sweeps now.
            LoomError: The store did not answer.
        """
        before = self._clock.now_ns() - self._grace_ns
        count = 0
        for scope in await self._documents.scopes():
            stale = await self._leftovers.stale(scope, before, _STALE_BATCH)
            if stale:
                await lease.check()
                await self._leftovers.remove(scope, stale)
                count += len(stale)
        return count

    async def _forget(self) -> None:
        while self._deleted:
            await asyncio.sleep(_GATHER_S)
            await self.flush()
