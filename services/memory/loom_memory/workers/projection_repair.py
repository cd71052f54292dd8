"""Repairs what is derived from memories where it does not fit them: counts, notes of what is gone, vectors of names."""

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from loom_common.attribution import Attribution
from loom_common.call import Scope
from loom_common.clock import Clock, MonotonicVersions
from loom_common.errors import LoomError
from loom_common.features import Feature
from loom_common.leases import Lease
from loom_common.model_calls.gate import ModelCallGate
from loom_common.model_calls.held import HOLDS
from loom_memory.app.batches import Pass, StoredTexts
from loom_memory.app.embedding import Chunk
from loom_memory.app.entities.vectors import EntityVectors
from loom_memory.app.holds import WriterHolds
from loom_memory.domain.memory import Identity
from loom_memory.domain.vectors import VectorSpace
from loom_memory.store.entities import EntityRepository
from loom_memory.store.rewrites import WaitingText
from loom_memory.workers.entities import EntityExtractor

logger = logging.getLogger(__name__)

_EVERY_S: Final = 600.0
_BATCH: Final = 500
# Longer than a pass of the extractor is between its first write and its last.
_SETTLED_NS: Final = 300_000_000_000


class ProjectionRepair:
    """Compares what is derived with what it is derived from, a namespace after the other.

    Memories without a row of vectors are the embedding worker's, which gives each a stub.
    """

    feature = Feature.PROJECTION_REPAIR
    setting = ""

    def __init__(
        self,
        entities: EntityRepository,
        extractor: EntityExtractor,
        vectors: EntityVectors,
        texts: StoredTexts,
        holds: WriterHolds,
        model_calls: ModelCallGate,
        clock: Clock,
        *,
        interval_s: float = _EVERY_S,
    ) -> None:
        self.interval_s = interval_s
        self._entities = entities
        self._extractor = extractor
        self._vectors = vectors
        self._texts = texts
        self._holds = holds
        self._model_calls = model_calls
        self._clock = clock
        self._versions = MonotonicVersions(clock)

    async def has_work(self) -> bool:
        """See `Worker.has_work`: looking is the work."""
        return bool(await self._entities.known_scopes(self._model_calls.off()))

    async def run_pass(self, lease: Lease) -> Mapping[str, int]:
        """See `Worker.run_pass`."""
        counts: Counter[str] = Counter()
        space = await self._texts.space()
        async with self._texts.passing() as texts:
            for scope in await self._entities.known_scopes(self._model_calls.off()):
                await lease.check()
                counts["forgotten"] += await self._forget(scope)
                counts["recounted"] += await self._recount(scope)
                counts["embedded"] += await self._embed(scope, space, texts, lease)
        return {name: count for name, count in counts.items() if count}

    async def _forget(self, scope: Scope) -> int:
        """Forgets what memories name that are not shown any more."""
        before = self._clock.now_ns() - _SETTLED_NS
        orphaned = await self._entities.orphaned(scope, before, self._clock.now(), _BATCH)
        gone = [replace(one, entity_ids=(), tombstoned_at=self._clock.now()) for one in orphaned]
        await self._entities.note(scope, {one: self._versions.next() for one in gone})
        touched: dict[str, set[str]] = {}
        for one in orphaned:
            touched.setdefault(one.identity.user_id, set()).update(one.entity_ids)
        for user_id, ids in touched.items():
            await self._extractor.recount(scope, user_id, ids)
        return len(orphaned)

    async def _recount(self, scope: Scope) -> int:
        before = self._clock.now_ns() - _SETTLED_NS
        wrong: dict[str, set[str]] = {}
        for user_id, entity_id in await self._entities.miscounted(scope, before, _BATCH):
            wrong.setdefault(user_id, set()).add(entity_id)
        return sum([await self._extractor.recount(scope, user_id, ids) for user_id, ids in wrong.items()])

    async def _embed(self, scope: Scope, space: VectorSpace, texts: Pass, lease: Lease) -> int:
        """Gives names their vectors, a call for each whom one may be for; those of held writers wait."""
        held = {writer.actor for writer in self._holds.now().writers if (writer.org, writer.namespace) == _names(scope)}
        page = await self._entities.lacking_page(scope, space, ("", ""), _BATCH, held)
        waiting = [
            WaitingText(scope, Identity(one.entity_id, one.user_id), one.version, one.text, actor=one.actor)
            for one in page
        ]
        count = 0
        async for attribution, group in texts.groups(waiting, lambda text: text):
            embedded = await self._embedded(attribution, space, group, texts)
            await lease.check()
            if embedded:
                count += await self._vectors.store(scope, space, embedded, staged=False)
        return count

    async def _embedded(
        self, attribution: Attribution, space: VectorSpace, group: list[WaitingText], texts: Pass
    ) -> list[tuple[WaitingText, list[Chunk]]]:
        try:
            found = await texts.embed(attribution, space, group)
        except LoomError as error:
            logger.warning("names_not_embedded", extra={"org": attribution.org, "reason": error.reason.value})
            return []
        embedded = []
        for waiting, chunks in zip(group, found, strict=True):
            if isinstance(chunks, HOLDS):
                self._holds.hold(waiting, chunks)
            elif not isinstance(chunks, LoomError):
                embedded.append((waiting, chunks))
        return embedded


def _names(scope: Scope) -> tuple[str, str]:
    return scope.org, scope.namespace
