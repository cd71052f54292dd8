"""Keeps an eye on the tasks that run beside the calls."""

import asyncio
import contextvars
import logging
from collections.abc import Coroutine

logger = logging.getLogger(__name__)


class Workers:
    """Starts tasks and knows which of them ended by an exception that they did not expect.

    None is started again by itself: what a worker cannot foresee it would most likely meet again, and a process that
    says that it is not ready is replaced.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: set[str] = set()

    @property
    def ended(self) -> tuple[str, ...]:
        """Names of the workers that are gone, sorted."""
        return tuple(sorted(self._ended))

    def start(self, name: str, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Runs `work` beside the calls; a worker of this name that ended before counts as replaced."""
        self._ended.discard(name)
        # An empty context: the task outlives the request that may have started it.
        task = asyncio.create_task(work, name=name, context=contextvars.Context())
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def close(self) -> None:
        """Cancels what runs, and returns once it has stopped."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._ended.add(task.get_name())
            logger.error("worker_ended", extra={"worker": task.get_name()}, exc_info=error)
