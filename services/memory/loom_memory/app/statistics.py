"""What searches know of a namespace, kept for seconds."""

from dataclasses import dataclass
from typing import Final

import cachetools

from loom_common.call import Scope
from loom_common.clock import Clock
from loom_memory.domain.memory import Filter
from loom_memory.store.memories import MemoryRepository, Statistics

_KEPT_S: Final = 5.0
_MAX_KEPT: Final = 4_096
# Source: chosen. The mean length and the count of a corpus move by less than this before they are read again, so that
# an order does not depend on when it was asked for; a small namespace is counted again after every write, in 3 ms.
_TOLERATED_CHANGE: Final = 0.01


@dataclass(slots=True)
class _Kept:
    statistics: Statistics
    writes: int = 0


class StatisticsCache:
    """Reads `Statistics` once and keeps them until time or writes of this process have made them old.

    They only weigh terms and name speakers: no row is found or missed by them.
    """

    def __init__(self, memories: MemoryRepository, clock: Clock) -> None:
        self._memories = memories
        self._clock = clock
        self._kept: cachetools.TTLCache[tuple[Scope, Filter], _Kept] = cachetools.TTLCache(
            _MAX_KEPT, _KEPT_S, clock.monotonic_s
        )
        self._writes: cachetools.LRUCache[Scope, int] = cachetools.LRUCache(_MAX_KEPT)

    async def get(self, scope: Scope, wanted: Filter) -> Statistics:
        """Returns the statistics of the rows that the filter admits."""
        writes = self._writes.get(scope, 0)
        kept = self._kept.get((scope, wanted))
        if kept is None or writes - kept.writes > kept.statistics.rows * _TOLERATED_CHANGE:
            kept = _Kept(await self._memories.statistics(scope, wanted, self._clock.now()), writes)
            self._kept[scope, wanted] = kept
        return kept.statistics

    def written(self, scope: Scope, count: int) -> None:
        """Notices writes of this process."""
        self._writes[scope] = self._writes.get(scope, 0) + count
