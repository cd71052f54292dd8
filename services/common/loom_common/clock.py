"""Time as an argument: what is now, how long something took, and version numbers that never repeat."""

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Tells the time. Code whose result depends on time takes one."""

    def now(self) -> datetime:
        """Returns the current time, aware, in UTC."""
        ...

    def now_ns(self) -> int:
        """Returns the current time in nanoseconds since 1970, UTC."""
        ...

    def monotonic_s(self) -> float:
        """Returns seconds of a clock that is never set back; only differences mean something."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """See `Clock.now`."""
        return datetime.now(UTC)

    def now_ns(self) -> int:
        """See `Clock.now_ns`."""
        return time.time_ns()

    def monotonic_s(self) -> float:
        """See `Clock.monotonic_s`."""
        return time.monotonic()


class FakeClock:
    """A clock that stands still until it is moved; for tests."""

    def __init__(self, start: datetime = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)) -> None:
        self._now = start
        self._monotonic_s = 0.0

    def now(self) -> datetime:
        """See `Clock.now`."""
        return self._now

    def now_ns(self) -> int:
        """See `Clock.now_ns`."""
        since = self._now - datetime(1970, 1, 1, tzinfo=UTC)
        return (since // timedelta(microseconds=1)) * 1000

    def monotonic_s(self) -> float:
        """See `Clock.monotonic_s`."""
        return self._monotonic_s

    def advance(self, seconds: float) -> None:
        """Moves the time forward, the monotonic clock with it."""
        self._now += timedelta(seconds=seconds)
        self._monotonic_s += seconds

    def set(self, now: datetime) -> None:
        """Sets the time, backwards too; the monotonic clock stays, as a machine's does."""
        self._now = now


class MonotonicVersions:
    """Draws versions for `ReplacingMergeTree(version)`: nanoseconds, but always above the last one drawn.

    Two writes of one process never tie, and a clock that is set back does not make a newer write older. Between
    processes the clocks decide; a write that depends on what it read takes its version from the row it read.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = 0
        self._lock = threading.Lock()

    def next(self, *, after: int = 0) -> int:
        """Returns a version above every one drawn before and above `after`, the version of a row that was read."""
        with self._lock:
            self._last = max(self._clock.now_ns(), self._last + 1, after + 1)
            return self._last
