"""The health of a namespace."""

from datetime import datetime, timedelta
from typing import Final

from loom_common.call import Scope
from loom_common.clock import Clock
from loom_common.conditional_writes import Claims
from loom_common.workers import Workers
from loom_memory.app.embedding import EmbeddingPort
from loom_memory.app.pending import PendingVectors
from loom_memory.domain.memory import Filter
from loom_memory.domain.vectors import VectorSpace
from loom_memory.guides.app.snapshots import Named, Snapshots
from loom_memory.guides.domain.health import Health as Numbers
from loom_memory.guides.domain.health import HealthSnapshot
from loom_memory.guides.store.facts import NamespaceFacts
from loom_memory.guides.store.snapshots import SnapshotRepository

KIND: Final = "health"
_WEEK: Final = timedelta(days=7)
_MONTH: Final = timedelta(days=30)


class MissingVectors:
    """Counts memories without vectors of the model that is served."""

    def __init__(self, embedding: EmbeddingPort, pending: PendingVectors) -> None:
        self._embedding = embedding
        self._pending = pending

    async def count(self, scope: Scope) -> int:
        """Returns how many there are.

        Raises:
            LoomError: Embedding or the store did not answer.
        """
        served = await self._embedding.served_model()
        return await self._pending.count(scope, Filter(), VectorSpace(served.name, served.dim))


class Health:
    """Counts what namespaces hold, once per span of time.

    Args:
        ttl_s: Length of a span. Units: seconds. 0 counts nothing.
        recorded: Whether it is recorded what reads show.
    """

    def __init__(
        self,
        facts: NamespaceFacts,
        missing: MissingVectors,
        snapshots: SnapshotRepository,
        clock: Clock,
        workers: Workers,
        claims: Claims | None,
        *,
        ttl_s: int,
        recorded: bool,
    ) -> None:
        self._facts = facts
        self._missing = missing
        self._recorded = recorded
        self._snapshots = Snapshots(
            KIND, ttl_s, HealthSnapshot, self._compute, lambda _: Named(), snapshots, clock, workers, claims
        )

    @property
    def is_on(self) -> bool:
        """Whether namespaces are counted."""
        return self._snapshots.is_on

    async def snapshot(self, scope: Scope) -> HealthSnapshot | None:
        """Returns the numbers that count now; None where nothing is counted.

        Raises:
            LoomError: The store did not answer.
        """
        return await self._snapshots.latest(scope)

    async def _compute(self, scope: Scope, now: datetime) -> HealthSnapshot:
        # First, because it is cheap and fails where embedding is away.
        missing = await self._missing.count(scope)
        numbers: Numbers = await self._facts.health(
            scope, now, week=now - _WEEK, month=now - _MONTH, recorded=self._recorded
        )
        return HealthSnapshot(computed_at=now, health=numbers.model_copy(update={"missing_vectors": missing}))
