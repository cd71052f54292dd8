"""Counting what a namespace holds and what happens in it."""

from collections.abc import Sequence
from datetime import datetime

from loom_common.call import Scope
from loom_common.clock import Clock
from loom_common.errors import InvalidArgument
from loom_memory.inventory.domain.counts import BY, Activity, Inventory
from loom_memory.inventory.store.counts import NamespaceCounts


class Inventories:
    """Counts anew at each call.

    Args:
        recorded: Whether it is recorded what reads show.
    """

    def __init__(self, counts: NamespaceCounts, clock: Clock, *, recorded: bool) -> None:
        self._counts = counts
        self._clock = clock
        self._recorded = recorded

    async def inventory(self, scope: Scope, by: Sequence[str], limit: int) -> Inventory:
        """Returns what a namespace holds, by the things named, or by all where none is; `limit` 0 counts no names.

        Raises:
            InvalidArgument: Nothing is counted by one of them.
        """
        unknown = sorted(set(by) - set(BY))
        if unknown:
            raise InvalidArgument.of("by", f"must be of {', '.join(BY)}")
        now = self._clock.now()
        totals = await self._counts.totals(scope, now)
        groups = await self._counts.names(scope, now, by or BY, limit) if limit else ()
        return Inventory(totals, groups, now)

    async def activity(self, scope: Scope, since: datetime, until: datetime, limit: int) -> Activity:
        """Returns what happened from `since` until before `until`."""
        found, resolved = await self._counts.conflicts(scope, since, until)
        return Activity(
            writers=await self._counts.writers(scope, since, until, limit),
            shown=await self._counts.shown(scope, since, until) if self._recorded else None,
            conflicts_found=found,
            conflicts_resolved=resolved,
        )
