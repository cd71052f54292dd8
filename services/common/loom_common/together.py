"""Work that runs side by side."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import TypeVar

from loom_common.errors import LoomError

A = TypeVar("A")
B = TypeVar("B")


async def both(one: Coroutine[None, None, A], other: Coroutine[None, None, B]) -> tuple[A, B]:
    """Runs two calls side by side; when one fails the other is cancelled, and its error is the caller's."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = group.create_task(one), group.create_task(other)
    except* LoomError as errors:
        raise errors.exceptions[0] from None
    return tasks[0].result(), tasks[1].result()


async def all_of(calls: Iterable[Coroutine[None, None, A]]) -> list[A]:
    """Runs calls side by side; when one fails the others are cancelled, and its error is the caller's."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except* LoomError as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
