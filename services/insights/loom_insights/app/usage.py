"""Recording calls, and telling what they spent."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Protocol

from loom_common.auth.claims import Claims
from loom_common.call import Scope
from loom_common.clock import Clock
from loom_insights.app.namespaces import ReadableNamespaces
from loom_insights.domain.costs import COST_BY, CostBy, CostReport
from loom_insights.domain.ledger import LedgerEntry
from loom_insights.domain.usage import GroupBy, Span, UsageGroup


class Ledger(Protocol):
    """Keeps one row per call."""

    async def add(self, entries: Sequence[LedgerEntry]) -> None:
        """Stores entries."""

    async def summary(self, scope: Scope, span: Span, group_by: GroupBy) -> list[UsageGroup]:
        """Returns what each group spent in a namespace, most calls first."""
        ...

    async def spent_usd(self, scope: Scope, since: datetime, op: str) -> float:
        """Returns what a namespace's calls cost from a time on; of one operation, or of all where it is empty."""
        ...


class UsageAccounts:
    """Writes the ledger and sums it."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock

    async def record(self, entries: Sequence[LedgerEntry]) -> int:
        """Stores entries and returns their number."""
        await self._ledger.add(entries)
        return len(entries)

    async def summarize(
        self, scope: Scope, since: datetime | None, until: datetime | None, group_by: GroupBy
    ) -> tuple[Span, list[UsageGroup]]:
        """Returns the span that was read and what each group spent in it.

        Raises:
            InvalidArgument: The span is empty, runs backwards or is too long.
        """
        span = Span.of(since, until, self._clock.now())
        return span, await self._ledger.summary(scope, span, group_by)

    async def spent_today_usd(self, scope: Scope, op: str) -> float:
        """Returns what a namespace's calls have cost since midnight UTC; of one operation, or of all."""
        midnight = self._clock.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        return await self._ledger.spent_usd(scope, midnight, op)


class CostLedger(Protocol):
    """Sums what was spent."""

    async def costs(self, org: str, namespaces: Sequence[str], span: Span, by: Sequence[CostBy]) -> CostReport:
        """Returns what namespaces spent, the dearest group first."""
        ...


class CostReports:
    """Tells what the namespaces of a caller cost."""

    def __init__(self, ledger: CostLedger, readable: ReadableNamespaces, clock: Clock) -> None:
        self._ledger = ledger
        self._readable = readable
        self._clock = clock

    async def report(
        self,
        claims: Claims,
        scope: Scope,
        others: Sequence[str],
        since: datetime | None,
        until: datetime | None,
        by: Sequence[CostBy],
    ) -> tuple[Span, tuple[str, ...], CostReport]:
        """Returns the span and the namespaces that were read, and what they cost; grouped by everything by default.

        Raises:
            InvalidArgument: The span is empty, runs backwards or is too long, or a name is not allowed.
            AuthInsufficient: The caller may not read one of the namespaces.
            NotFound: There is no such namespace that the caller may use.
        """
        span = Span.of(since, until, self._clock.now())
        namespaces = await self._readable.all_of(claims, scope, others)
        return span, namespaces, await self._ledger.costs(scope.org, namespaces, span, by or COST_BY)
