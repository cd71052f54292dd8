"""How memory fares."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from loom_common.clickhouse import ClickHouse
from loom_common.errors import LoomError
from loom_common.status import Problem, StatusReport, worker_ended
from loom_memory.app.embedding import EmbeddingPort, ServedModel
from loom_memory.store.stubs import Waiting
from loom_memory.tier.cache import TierFacts

logger = logging.getLogger(__name__)

_FIRST_WAIT_S: Final = 0.1
# Source: chosen. A start waits for this, and one call in a quarter of a second costs nothing.
_LONGEST_WAIT_S: Final = 0.25


class MemoryStatus:
    """Ready while the store and embedding answer; the latter may start later than this service.

    A process that lost one of its workers is not ready either.
    """

    def __init__(
        self,
        ch: ClickHouse,
        embedding: EmbeddingPort,
        ended: Callable[[], Sequence[str]],
        waiting: Callable[[], Waiting | None] = lambda: None,
        held: Callable[[], TierFacts] = lambda: TierFacts(0, 0, 0),
    ) -> None:
        # `ended` names the workers that are gone; `waiting` tells what lacks vectors, once that was counted; `held`
        # what the tier holds.
        self._held = held
        self._ended = ended
        self._waiting = waiting
        self._ch = ch
        self._embedding = embedding
        self._served: ServedModel | None = None

    async def learn_model(self) -> None:
        """Asks embedding for its model until it answers."""
        wait_s = _FIRST_WAIT_S
        while self._served is None:
            try:
                self._served = await self._embedding.served_model()
                logger.info("embedding_model", extra={"model": self._served.name, "dim": self._served.dim})
            except LoomError as error:
                logger.debug("embedding_not_ready", extra={"reason": error.reason.value})
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, _LONGEST_WAIT_S)

    async def report(self) -> StatusReport:
        """See `StatusSource.report`."""
        problems = []
        try:
            await self._ch.ping()
        except LoomError as error:
            problems.append(Problem("clickhouse_unreachable", error.message, "error"))
        try:
            await self._embedding.ping()
        except LoomError:
            problems.append(
                Problem("embedding_unreachable", "Embedding does not answer; check LOOM_EMBEDDING_ADDR.", "error")
            )
        problems += [worker_ended(name, "memory") for name in self._ended()]
        if self._served is None:
            return StatusReport(ready=False, problems=problems)
        held = self._held()
        facts = {
            "embedding_model": self._served.name,
            "embedding_dim": str(self._served.dim),
            "tier_namespaces": str(held.namespaces),
            "tier_memories": str(held.rows),
            "tier_mb": str(held.size_bytes >> 20),
        }
        ready = not problems
        waiting = self._waiting()
        if waiting is not None:
            facts |= {"embedding_pending": str(waiting.pending), "embedding_stubs": str(waiting.stubs)}
            if waiting.pending > waiting.stubs:
                problems.append(_not_reembedded(waiting.pending - waiting.stubs))
        return StatusReport(ready=ready, problems=problems, facts=facts)


def _not_reembedded(count: int) -> Problem:
    return Problem(
        "embedding_pending",
        f"{count} memories have vectors of another model only, and are found by their words alone; run `loom reembed`.",
    )
