"""What should be put right in a namespace."""

from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clock import Clock
from loom_common.conditional_writes import Claims
from loom_common.workers import Workers
from loom_memory.guides.app.health import MissingVectors
from loom_memory.guides.app.snapshots import Named, Snapshots
from loom_memory.guides.domain.findings import (
    FEWEST_UNNAMED,
    LONG_CHARS,
    STALE_AFTER,
    UNUSED_AFTER,
    Finding,
    FindingsSnapshot,
    Found,
    Kind,
    findings_of,
)
from loom_memory.guides.store.facts import NamespaceFacts
from loom_memory.guides.store.snapshots import SnapshotRepository

KIND: Final = "mentor"


class Mentor:
    """Looks for what should be put right, once per span of time, by rules alone.

    Args:
        ttl_s: Length of a span. Units: seconds. 0 looks for nothing.
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
            KIND, ttl_s, FindingsSnapshot, self._compute, _named, snapshots, clock, workers, claims
        )

    @property
    def is_on(self) -> bool:
        """Whether anything is looked for."""
        return self._snapshots.is_on

    async def findings(self, scope: Scope) -> tuple[Finding, ...]:
        """Returns what was found, the most pressing first; nothing where nothing is looked for.

        Raises:
            LoomError: The store did not answer.
        """
        snapshot = await self.snapshot(scope)
        return () if snapshot is None else findings_of(snapshot.found)

    async def snapshot(self, scope: Scope) -> FindingsSnapshot | None:
        """Returns what was found, by rule and agent; None where nothing is looked for.

        Raises:
            LoomError: The store did not answer.
        """
        return await self._snapshots.latest(scope)

    async def _compute(self, scope: Scope, now: datetime) -> FindingsSnapshot:
        missing = await self._missing.count(scope)
        found = await self._facts.found(
            scope,
            now,
            stale=now - STALE_AFTER,
            unused=now - UNUSED_AFTER,
            long_chars=LONG_CHARS,
            recorded=self._recorded,
        )
        if missing:
            found.append(Found(kind=Kind.MISSING_VECTORS, agent="", count=missing))
        unnamed = sum(each.count for each in found if each.kind is Kind.UNNAMED_KEYS)
        held = await self._facts.memories(scope, now) if unnamed >= FEWEST_UNNAMED else 0
        if unnamed < FEWEST_UNNAMED or unnamed * 2 <= held:
            # Few of them are notes in passing, and no habit.
            found = [each for each in found if each.kind is not Kind.UNNAMED_KEYS]
        return FindingsSnapshot(computed_at=now, found=tuple(found))


def _named(snapshot: FindingsSnapshot) -> Named:
    subjects = [subject for each in snapshot.found for subject in each.subjects]
    return Named(tuple(subject.user_id for subject in subjects), tuple(subject.key for subject in subjects))
