"""Reads that tell what a namespace holds and how it is used. No model is asked."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, Protocol

from loom_common.call import Scope
from loom_common.clock import Clock
from loom_insights.app.memory import MemoryFacts
from loom_insights.domain.namespace import (
    Audit,
    Caller,
    Draft,
    Failure,
    Findings,
    Inventory,
    Searches,
    Spent,
    Summary,
)
from loom_insights.domain.tuning import MOST_KINDS, drafts_of
from loom_insights.domain.usage import Span

WEEK: Final = timedelta(days=7)

_MOST_KINDS: Final = 10
_MOST_ROWS: Final = 50


class LedgerReads(Protocol):
    """Knows what was called."""

    async def spent(self, scope: Scope, span: Span) -> Spent:
        """Returns what a span of time saw and cost."""
        ...

    async def callers(self, scope: Scope, span: Span, limit: int) -> list[Caller]:
        """Returns who called, most calls first."""
        ...

    async def failures(self, scope: Scope, span: Span, limit: int) -> list[Failure]:
        """Returns what failed, most frequent first."""
        ...

    async def searches(self, scope: Scope, span: Span) -> Searches:
        """Returns how many searches ended well, and how many of them found nothing."""
        ...


class NamespaceReads:
    """Puts together what memory and the ledger know of one namespace."""

    def __init__(self, memory: MemoryFacts, ledger: LedgerReads, clock: Clock) -> None:
        self._memory = memory
        self._ledger = ledger
        self._clock = clock

    async def summary(self, scope: Scope) -> Summary:
        """Returns a namespace in one look.

        Raises:
            LoomError: Memory or the store did not answer.
        """
        inventory, guide, findings, week = await asyncio.gather(
            self._memory.inventory(scope, ("kind",), _MOST_KINDS),
            self._memory.guide(scope),
            self._memory.findings(scope),
            self._ledger.spent(scope, self._span(WEEK)),
        )
        return Summary(inventory, guide, findings, week)

    async def inventory(self, scope: Scope, limit: int) -> Inventory:
        """Returns what a namespace holds, by everything that is counted by."""
        return await self._memory.inventory(scope, (), limit)

    async def audit(self, scope: Scope, length: timedelta) -> Audit:
        """Returns what happened in the time that ends now."""
        span = self._span(length)
        activity, callers, failures, searches, findings = await asyncio.gather(
            self._memory.activity(scope, span.since, span.until, _MOST_ROWS),
            self._ledger.callers(scope, span, _MOST_ROWS),
            self._ledger.failures(scope, span, _MOST_ROWS),
            self._ledger.searches(scope, span),
            self._memory.findings(scope),
        )
        return Audit(span.since, span.until, activity, callers, failures, searches, findings)

    async def tune(self, scope: Scope) -> tuple[Sequence[Draft], str]:
        """Returns drafts of changes, and when the numbers were read."""
        inventory, findings, guide, searches = await asyncio.gather(
            self._memory.inventory(scope, ("kind", "key_prefix"), MOST_KINDS),
            self._memory.findings(scope),
            self._memory.guide(scope),
            self._ledger.searches(scope, self._span(WEEK)),
        )
        return drafts_of(inventory, findings, guide, searches), inventory.read_at

    async def findings(self, scope: Scope, agent: str) -> Findings:
        """Returns what should be put right; with an agent, of its memories alone."""
        return await self._memory.findings(scope, agent)

    def _span(self, length: timedelta) -> Span:
        now = self._clock.now()
        return Span(now - length, now)
