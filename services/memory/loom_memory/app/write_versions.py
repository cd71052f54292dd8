"""The numbers of writes, and which of them are still on their way to the store."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from loom_common.clock import Clock, MonotonicVersions


class WriteVersions:
    """Draws versions, and knows up to which one everything is stored.

    A list that begins while a write is under way must not take that write's version for settled: it would miss the
    row where it stood before.
    """

    def __init__(self, clock: Clock) -> None:
        self._versions = MonotonicVersions(clock)
        self._under_way: Counter[int] = Counter()

    @contextmanager
    def write(self) -> Iterator["DrawnVersions"]:
        """Opens a write: until the block ends, what it draws is not settled."""
        floor = self._versions.next()
        self._under_way[floor] += 1
        try:
            yield DrawnVersions(self._versions)
        finally:
            del self._under_way[floor]

    @property
    def settled(self) -> int:
        """Version up to which every write of this process is stored by now."""
        drawn = self._versions.next()
        return min(self._under_way, default=drawn)


class DrawnVersions:
    """The versions of one write."""

    def __init__(self, versions: MonotonicVersions) -> None:
        self._versions = versions

    def next(self, *, after: int) -> int:
        """Returns a version above every one drawn before and above `after`, the row that was read."""
        return self._versions.next(after=after)
