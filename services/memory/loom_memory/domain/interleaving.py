"""Merging of lists that each have an order of their own."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def interleaved(lists: Sequence[Iterable[T]], key: Callable[[T], tuple[float, ...]]) -> list[T]:
    """Returns everything that lists hold, always the front with the least key next, the earlier list's of equal ones.

    No list's own order is changed.
    """
    queues = [deque(each) for each in lists]
    found: list[T] = []
    while any(queues):
        best = min(
            (place for place, queue in enumerate(queues) if queue), key=lambda place: (key(queues[place][0]), place)
        )
        found.append(queues[best].popleft())
    return found
