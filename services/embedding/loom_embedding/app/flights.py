"""Shares one running call among all who ask for the same thing at the same time."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(slots=True, eq=False)
class _Flight(Generic[V]):
    task: asyncio.Task[V]
    waiters: int = 0


class SingleFlight(Generic[K, V]):
    """Runs one call per key at a time. It ends with its last waiter, not with its first."""

    def __init__(self) -> None:
        self._flights: dict[K, _Flight[V]] = {}

    async def run(self, key: K, start: Callable[[], Coroutine[Any, Any, V]], bound_s: float) -> V:
        """Returns what the running call of `key` answers, starting one with `start` where none runs.

        A call that somebody found too slow is joined by nobody else.

        Raises:
            TimeoutError: It did not answer within `bound_s`.
        """
        flight = self._flights.get(key)
        if flight is None:
            flight = _Flight(asyncio.ensure_future(start()))
            self._flights[key] = flight
            flight.task.add_done_callback(lambda task: self._ended(key, flight, task))
        flight.waiters += 1
        try:
            async with asyncio.timeout(bound_s):
                return await asyncio.shield(flight.task)
        except TimeoutError:
            self._forget(key, flight)
            raise
        finally:
            flight.waiters -= 1
            if not flight.waiters and not flight.task.done():
                self._forget(key, flight)
                flight.task.cancel()

    def _ended(self, key: K, flight: _Flight[V], task: asyncio.Task[V]) -> None:
        self._forget(key, flight)
        if not task.cancelled():
            task.exception()  # seen: its waiters may all have left

    def _forget(self, key: K, flight: _Flight[V]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
