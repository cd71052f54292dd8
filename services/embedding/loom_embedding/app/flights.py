"""Shares one running call among all who ask for the same thing at the same time."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from loom_common import call
from loom_common.call import Call
from loom_common.usage import Usage

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

Unpaid = Callable[[Usage, datetime, float], None]
"""Told, within the call that began it, what a call spent that nobody waited for, and when it began: the time of day,
and on the clock of `time.monotonic`."""


@dataclass(slots=True, eq=False)
class _Flight(Generic[V]):
    task: asyncio.Task[V]
    call: Call
    """The call that began it, with a count of its own: who began it may be gone before it ends."""
    waiters: int = 0
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    started_s: float = field(default_factory=time.monotonic)

    def take_usage(self) -> Usage:
        """Returns what it spent, to the first who asks."""
        spent, self.call.usage = self.call.usage, Usage()
        return spent


class SingleFlight(Generic[K, V]):
    """Runs one call per key at a time. It ends with its last waiter, not with its first.

    What it spends is added to the usage of one of those who are still there when it ends.

    Args:
        unpaid: Told of what it spent where none of them is; None: it is not counted.
    """

    def __init__(self, unpaid: Unpaid | None = None) -> None:
        self._flights: dict[K, _Flight[V]] = {}
        self._unpaid = unpaid

    async def run(self, key: K, start: Callable[[], Coroutine[Any, Any, V]], bound_s: float) -> V:
        """Returns what the running call of `key` answers, starting one with `start` where none runs.

        A call that somebody found too slow is joined by nobody else.

        Raises:
            TimeoutError: It did not answer within `bound_s`.
        """
        flight = self._flights.get(key)
        if flight is None:
            flight = self._begun(key, start)
        flight.waiters += 1
        gone = False
        try:
            async with asyncio.timeout(bound_s):
                return await asyncio.shield(flight.task)
        except TimeoutError:
            self._forget(key, flight)
            raise
        except asyncio.CancelledError:
            gone = True
            raise
        finally:
            flight.waiters -= 1
            if not flight.task.done():
                if not flight.waiters:
                    self._forget(key, flight)
                    flight.task.cancel()
            elif not gone and call.current().time_left_s() != 0:
                call.current().usage.merge(flight.take_usage())
            elif not flight.waiters:
                self._settle(flight)

    def _begun(self, key: K, start: Callable[[], Coroutine[Any, Any, V]]) -> _Flight[V]:
        own = replace(call.current(), usage=Usage())
        with call.bind(own):
            flight = _Flight(asyncio.ensure_future(start()), own)
        self._flights[key] = flight
        flight.task.add_done_callback(lambda task: self._ended(key, flight, task))
        return flight

    def _ended(self, key: K, flight: _Flight[V], task: asyncio.Task[V]) -> None:
        self._forget(key, flight)
        if not task.cancelled():
            task.exception()  # seen: its waiters may all have left
        if not flight.waiters:
            self._settle(flight)

    def _settle(self, flight: _Flight[V]) -> None:
        spent = flight.take_usage()
        if spent and self._unpaid is not None:
            with call.bind(flight.call):
                self._unpaid(spent, flight.started_at, flight.started_s)

    def _forget(self, key: K, flight: _Flight[V]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
