"""Judges conflicts after the writes that found them, and finishes what interrupted writes left of them."""

import logging
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from loom_common.clock import Clock
from loom_common.errors import Conflict, InvalidArgument, LoomError, NotFound
from loom_common.features import Feature
from loom_common.leases import Lease
from loom_common.model_calls.held import HOLDS
from loom_memory.app.conflicts import ConflictDesk, Judgement
from loom_memory.app.holds import WriterHolds
from loom_memory.app.llm import LlmPort
from loom_memory.app.passes import Passes, WorkerPass
from loom_memory.app.validity import Validity
from loom_memory.domain.conflict import Mark, is_of
from loom_memory.domain.judging import answer, question
from loom_memory.domain.memory import Memory
from loom_memory.domain.prompts.conflict import JUDGE
from loom_memory.store.conflicts import ConflictRepository
from loom_memory.store.memories import MemoryRepository
from loom_memory.store.rewrites import WaitingText

logger = logging.getLogger(__name__)

ACTOR: Final = "process:conflict-resolver"

_LOOK_S: Final = 10.0
_BATCH: Final = 50
_MOST_ATTEMPTS: Final = 3
_TIMEOUT_S: Final = 60.0
_MAX_TOKENS: Final = 512
# Source: chosen. Between attempts; three of them fit into the time below.
_RETRY_S: Final = (60.0, 600.0)
# After this a write stands as it was made, whoever was away; people settle what is left.
_JUDGED_FOR: Final = timedelta(hours=1)
# A write that takes longer than this to end what it contradicts was interrupted.
_GRACE: Final = timedelta(seconds=60)
_FAKE_RETRY_S: Final = 300.0


class ConflictResolver:
    """Works through open marks, the oldest first, each call in the name of who wrote the memory that holds.

    A write's own verdict stands until a mark is judged: no write waits for a model, and none depends on its word.
    """

    feature = Feature.CONFLICT_RESOLVER
    setting = "LOOM_MEMORY_CONFLICT_RESOLVER_ENABLED"

    def __init__(
        self,
        conflicts: ConflictRepository,
        memories: MemoryRepository,
        desk: ConflictDesk,
        validity: Validity,
        llm: LlmPort,
        holds: WriterHolds,
        passes: Passes,
        clock: Clock,
        *,
        enabled: bool | None,
        model: str,
        interval_s: float = _LOOK_S,
        grace: timedelta = _GRACE,
    ) -> None:
        # `enabled` None is on where the served model is a real one.
        self.interval_s = interval_s
        self._conflicts = conflicts
        self._memories = memories
        self._desk = desk
        self._validity = validity
        self._llm = llm
        self._holds = holds
        self._passes = passes
        self._clock = clock
        self._enabled = enabled
        self._model = model
        self._grace = grace

    async def has_work(self) -> bool:
        """See `Worker.has_work`."""
        if await self._conflicts.unsettled(self._clock.now() - self._grace, 1):
            return True
        return await self._judges() and bool(await self._due(1))

    async def run_pass(self, lease: Lease) -> Mapping[str, int]:
        """See `Worker.run_pass`."""
        counts: Counter[str] = Counter()
        await lease.check()
        counts["swept"] = await self._validity.sweep(self._grace, _BATCH)
        if not await self._judges():
            return counts
        async with self._passes.passing() as passing:
            for mark in await self._due(_BATCH):
                await lease.renew()
                counts[await self._judge(mark, passing)] += 1
        return counts

    async def _judges(self) -> bool:
        if self._enabled is not None:
            return self._enabled
        try:
            return not (await self._llm.served()).fake
        except LoomError:
            return False

    async def _due(self, limit: int) -> list[Mark]:
        held = self._holds.now()
        now = self._clock.now()
        return await self._conflicts.due(
            now,
            since=now - _JUDGED_FOR,
            most_attempts=_MOST_ATTEMPTS,
            limit=limit,
            held_orgs=held.orgs,
            held_writers=held.writers,
            by_user=held.by_user,
        )

    async def _judge(self, mark: Mark, passing: WorkerPass) -> str:
        rows = await self._memories.current(mark.scope, [mark.newer, mark.older])
        newer, older = rows.get(mark.newer), rows.get(mark.older)
        if newer is None or older is None or not is_of(mark, newer, older):
            await self._desk.drop(mark)
            return "stale"
        waiting = WaitingText(mark.scope, mark.newer, newer.version, "", actor=newer.actor)
        reason = self._holds.reason(waiting)
        if reason is not None:
            return "held"
        with passing.acting(mark.scope, newer.actor, mark.newer.user_id):
            try:
                return await self._settle(mark, newer, older)
            except HOLDS as error:
                # Nothing failed: the mark waits, with no attempt spent.
                await self._desk.postpone(mark, attempts=mark.attempts, retry_s=self._holds.hold(waiting, error))
                return "held"
            except (Conflict, NotFound):
                return "stale"
            except LoomError as error:
                logger.warning("conflict_not_judged", extra={"reason": error.reason.value})
                await self._failed(mark)
                return "failed"

    async def _settle(self, mark: Mark, newer: Memory, older: Memory) -> str:
        completion = await self._llm.complete(
            JUDGE.text,
            question(newer, older),
            max_tokens=_MAX_TOKENS,
            json=True,
            feature=self.feature.value,
            model=self._model or None,
            prompt=JUDGE,
            timeout_s=_TIMEOUT_S,
        )
        if completion.fake:
            # The model's provider has no key; a fake's word is no judgement.
            await self._desk.postpone(mark, attempts=mark.attempts, retry_s=_FAKE_RETRY_S)
            return "held"
        found = answer(completion.text, newer, older)
        if found is None:
            await self._failed(mark)
            return "failed"
        resolution, value, why = found
        try:
            await self._desk.settle(mark.scope, mark.conflict_id, Judgement(resolution, value, why), ACTOR)
        except InvalidArgument:
            # The namespace does not let the merged words be written.
            await self._failed(mark)
            return "failed"
        return resolution.value

    async def _failed(self, mark: Mark) -> None:
        retry_s = _RETRY_S[min(mark.attempts, len(_RETRY_S) - 1)]
        await self._desk.postpone(mark, attempts=mark.attempts + 1, retry_s=retry_s)
