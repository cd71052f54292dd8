"""What insights asks memory for."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from loom_common.call import Scope
from loom_insights.domain.namespace import Activity, Findings, Guide, Inventory


class MemoryFacts(Protocol):
    """Knows what a namespace holds. Each call may raise a LoomError where memory does not answer."""

    async def inventory(self, scope: Scope, by: Sequence[str], limit: int) -> Inventory:
        """Returns what is held, with counts by the things named; `limit` 0 counts no names."""
        ...

    async def activity(self, scope: Scope, since: datetime, until: datetime, limit: int) -> Activity:
        """Returns what was written, shown and found to contradict."""
        ...

    async def findings(self, scope: Scope, agent: str = "") -> Findings:
        """Returns what should be put right; with an agent, of its memories alone."""
        ...

    async def guide(self, scope: Scope) -> Guide:
        """Returns the namespace's guide."""
        ...


class FakeMemoryFacts:
    """Says what a test gives it, for every namespace the same. A `MemoryFacts`.

    Attributes:
        asked: Namespaces that were asked for.
    """

    def __init__(
        self,
        inventory: Inventory,
        *,
        activity: Activity | None = None,
        findings: Findings | None = None,
        guide: Guide | None = None,
    ) -> None:
        self._inventory = inventory
        self._activity = activity or Activity()
        self._findings = findings or Findings()
        self._guide = guide or Guide()
        self.asked: list[Scope] = []

    async def inventory(self, scope: Scope, by: Sequence[str], limit: int) -> Inventory:
        """See `MemoryFacts.inventory`."""
        self.asked.append(scope)
        groups = tuple(group for group in self._inventory.groups if not by or group.by in by)
        return Inventory(self._inventory.totals, groups if limit else (), self._inventory.read_at)

    async def activity(self, scope: Scope, since: datetime, until: datetime, limit: int) -> Activity:
        """See `MemoryFacts.activity`."""
        self.asked.append(scope)
        return self._activity

    async def findings(self, scope: Scope, agent: str = "") -> Findings:
        """See `MemoryFacts.findings`."""
        self.asked.append(scope)
        return self._findings

    async def guide(self, scope: Scope) -> Guide:
        """See `MemoryFacts.guide`."""
        self.asked.append(scope)
        return self._guide
