"""What a test must leave behind as it found it: the event loop's tasks."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

_WITHIN_S: Final = 5.0
_POLL_S: Final = 0.01
# A server of grpc's waits for the next call in a new task each time.
_WAITING: Final = frozenset({"AioServer._request_call"})


@asynccontextmanager
async def no_task_left() -> AsyncIterator[None]:
    """Fails where a task that was begun in the block still runs shortly after it.

    Raises:
        AssertionError: Names of those that do.
    """
    before = asyncio.all_tasks()

    def left() -> "set[asyncio.Task[Any]]":
        return {task for task in asyncio.all_tasks() - before if _work(task) not in _WAITING}

    yield
    await eventually(lambda: not left(), lambda: f"left running: {_names(left())}")


async def eventually(check: Callable[[], bool], otherwise: Callable[[], str] = lambda: "") -> None:
    """Waits until `check` holds.

    Raises:
        AssertionError: It did not hold in time; the text is what `otherwise` returns.
    """
    until = asyncio.get_running_loop().time() + _WITHIN_S
    while not check():
        assert asyncio.get_running_loop().time() < until, otherwise()
        await asyncio.sleep(_POLL_S)


def _names(tasks: "set[asyncio.Task[Any]]") -> str:
    return "; ".join(sorted(f"{task.get_name()}: {_work(task)}" for task in tasks))


def _work(task: "asyncio.Task[Any]") -> str:
    return getattr(task.get_coro(), "__qualname__", "")
