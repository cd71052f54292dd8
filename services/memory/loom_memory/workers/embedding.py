"""Gives vectors to memories that were stored without: stubs, newest first, and memories that have no row at all."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from loom_common.attribution import Attribution
from loom_common.clickhouse import tagged
from loom_common.clock import Clock
from loom_common.errors import LoomError, ModelCallsOff, ModelCallUnattributed
from loom_common.features import Feature
from loom_common.leases import Lease, LeaseLost, Leases
from loom_common.model_calls.held import HOLDS
from loom_memory.app.batches import Pass, StoredTexts, chunks_of
from loom_memory.app.embedding import Chunk
from loom_memory.app.holds import WriterHolds
from loom_memory.app.reembedding import LEASE, LEASE_S
from loom_memory.app.vector_tables import key_ranges
from loom_memory.domain.vectors import NEVER, VectorSpace, retry_after_s
from loom_memory.store.embeddings import EmbeddedChunk, EmbeddingRepository
from loom_memory.store.rewrites import VectorRewrites
from loom_memory.store.stubs import Stub, StubRepository, Waiting
from loom_memory.store.versions import VersionRepository

logger = logging.getLogger(__name__)

NAME: Final = Feature.EMBEDDING_WORKER.value

# Source: chosen. A look that finds nothing is one statement over one narrow column.
_LOOK_S: Final = 10.0
_FIRST_WAIT_S: Final = 0.25
# While the store or the embedder does not answer, looks grow this far apart.
_LONGEST_LOOK_S: Final = 300.0
_BATCH: Final = 64
# A run of `memory.reembed` waits for a turn's end.
_TURN_BATCHES: Final = 8
# Counting reads the keys of the whole store.
_COUNT_EVERY_S: Final = 60.0
_STUB_EVERY_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn did, in memories."""

    embedded: int = 0
    failed: int = 0
    given_up: int = 0

    def __add__(self, other: "Turn") -> "Turn":
        return Turn(self.embedded + other.embedded, self.failed + other.failed, self.given_up + other.given_up)


class EmbeddingWorker:
    """Works in whichever process holds the lease, which it shares with `memory.reembed`.

    Vectors are stored before the stub is removed: a crash between leaves both, and the next turn removes the stub.

    Attributes:
        waiting: What waited when it was last counted; None before.
    """

    def __init__(
        self,
        stubs: StubRepository,
        rewrites: VectorRewrites,
        embeddings: EmbeddingRepository,
        versions: VersionRepository,
        texts: StoredTexts,
        holds: WriterHolds,
        leases: Leases,
        clock: Clock,
        *,
        batch_size: int = _BATCH,
    ) -> None:
        self._stubs = stubs
        self._rewrites = rewrites
        self._embeddings = embeddings
        self._versions = versions
        self._texts = texts
        self._holds = holds
        self._leases = leases
        self._clock = clock
        self._batch_size = batch_size
        self.waiting: Waiting | None = None

    async def run(self) -> None:
        """Works until it is cancelled."""
        await self._model_known()
        counted = stubbed = float("-inf")
        wait_s = _LOOK_S
        while True:
            with tagged(NAME):
                try:
                    now = self._clock.monotonic_s()
                    if now - stubbed >= _STUB_EVERY_S:
                        await self.stub_missing()
                        stubbed = now
                    await self.take_turn()
                    if now - counted >= _COUNT_EVERY_S:
                        await self.count()
                        counted = now
                    wait_s = _LOOK_S
                except (LoomError, LeaseLost) as error:
                    # Embedding that is not up yet is the usual reason, and its trace would say nothing more.
                    logger.warning("embedding_worker_interrupted", extra={"reason": str(error)})
                    wait_s = min(wait_s * 2, _LONGEST_LOOK_S)
            await asyncio.sleep(wait_s)

    async def _model_known(self) -> None:
        """Returns once embedding has told its model; at a start it is often the last to serve."""
        wait_s = _FIRST_WAIT_S
        while True:
            try:
                await self._texts.space()
            except LoomError:
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, _LOOK_S)
            else:
                return

    async def count(self) -> Waiting:
        """Counts what waits in the whole store."""
        self.waiting = await self._stubs.waiting(await self._texts.space(), self._clock.now())
        return self.waiting

    async def stub_missing(self) -> int:
        """Stores a stub for each memory that has no row of vectors at all, and returns how many those were.

        Raises:
            LeaseLost: Another process does it now.
            LoomError: The store or embedding did not answer.
        """
        space = await self._texts.space()
        count = 0
        async with self._leases.taken(LEASE, LEASE_S) as lease:
            if lease is None:
                return 0
            for scope in await self._rewrites.scopes():
                async for keys in key_ranges(self._versions, scope):
                    while missing := await self._stubs.missing(keys, self._clock.now(), self._batch_size):
                        await lease.renew()
                        await self._embeddings.insert(space.model, missing)
                        count += len(missing)
        if count:
            logger.warning("memories_without_vectors", extra={"memories": count})
        return count

    async def take_turn(self) -> Turn:
        """Embeds stubs whose time has come, for a bounded time, unless another process does.

        Raises:
            LeaseLost: Another process does it now.
            LoomError: The store or embedding did not answer.
        """
        if not await self._stubs.any_due(self._clock.now(), self._holds.now()):
            return Turn()
        space = await self._texts.space()
        if not await self._due(space) and not await self._stubs.finished(space, 1):
            return Turn()
        async with self._leases.taken(LEASE, LEASE_S) as lease:
            if lease is None:
                return Turn()
            async with self._texts.passing() as texts:
                return await self._work(space, lease, texts)

    async def _work(self, space: VectorSpace, lease: Lease, texts: Pass) -> Turn:
        turn = Turn()
        for _ in range(_TURN_BATCHES):
            due = await self._due(space)
            if not due:
                break
            async for attribution, stubs in texts.groups(due, lambda stub: stub.waiting):
                await lease.renew()
                turn += await self._embed(attribution, space, stubs, texts)
        await lease.check()
        for scope, placed in (await self._stubs.finished(space, self._batch_size * _TURN_BATCHES)).items():
            await self._stubs.remove(scope, placed)
        logger.info(
            "stubs_embedded",
            extra={"embedded": turn.embedded, "failed": turn.failed, "given_up": turn.given_up},
        )
        return turn

    async def _due(self, space: VectorSpace) -> list[Stub]:
        return await self._stubs.due(space, self._clock.now(), self._batch_size, self._holds.now())

    async def _embed(self, attribution: Attribution, space: VectorSpace, stubs: Sequence[Stub], texts: Pass) -> Turn:
        found = await texts.embed(attribution, space, [stub.waiting for stub in stubs])
        turn = Turn()
        rows: list[EmbeddedChunk] = []
        held: list[tuple[Stub, LoomError]] = []
        for stub, chunks in zip(stubs, found, strict=True):
            if isinstance(chunks, HOLDS):
                held.append((stub, chunks))
            elif isinstance(chunks, ModelCallUnattributed):
                # No call can be made for it, also later.
                rows.append(_later(stub, NEVER))
                turn += Turn(given_up=1)
            elif isinstance(chunks, LoomError):
                rest = timedelta(seconds=retry_after_s(stub.attempts + 1))
                rows.append(_later(stub, self._clock.now() + rest))
                turn += Turn(failed=1)
            else:
                rows += chunks_of(stub.waiting, chunks)
                turn += Turn(embedded=1)
        if turn.given_up:
            logger.error("stub_names_no_org", extra={"memories": turn.given_up})
        if rows:
            await self._embeddings.insert(space.model, rows)
        await self._hold(attribution, held)
        return turn

    async def _hold(self, attribution: Attribution, held: Sequence[tuple[Stub, LoomError]]) -> None:
        """Leaves stubs and what else their writers have for a while, with no attempt spent."""
        resting: dict[float, list[Stub]] = {}
        for stub, error in held:
            org = stub.waiting.scope.org
            # One organisation's switch says nothing of the others in its call: they are selected again without it.
            if not isinstance(error, ModelCallsOff) or org == attribution.org:
                resting.setdefault(self._holds.hold(stub.waiting, error), []).append(stub)
        for rest_s, stubs in resting.items():
            await self._stubs.rest(stubs, self._clock.now() + timedelta(seconds=rest_s))
        if held:
            reason = held[0][1].reason.value
            logger.warning("stubs_held", extra={"org": attribution.org, "memories": len(held), "reason": reason})


def _later(stub: Stub, at: datetime) -> EmbeddedChunk:
    """Returns the row that counts one more attempt and says when the next is due."""
    row = chunks_of(stub.waiting, [Chunk(0, len(stub.waiting.text), ())])[0]
    return replace(row, chunk=stub.attempts + 1, embed_retry_at=at)
