"""A pool of engine handles used from threads: fair, and safe against callers that leave.

A statement blocks its thread and cannot be interrupted from Python, so a caller that is cancelled does not free the
handle: the thread does, when the statement has ended. To make that soon, the statement is killed by its mark through
a handle that is kept for nothing else.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Generic, Protocol, TypeVar

from loom_common.errors import BackendUnavailable, DeadlineExceeded

logger = logging.getLogger(__name__)

H = TypeVar("H", bound="Closable")
T = TypeVar("T")

# The engine ends a statement itself within 30 ms of its limit (measured), so this is reached only when it cannot.
GRACE_S = 0.5
_FIRST_KILL_INTERVAL_S = 0.05
_LAST_KILL_INTERVAL_S = 1.0


class Closable(Protocol):
    """What a pool must be able to do with a handle."""

    def close(self) -> None:
        """Closes the handle."""


class _Place(Generic[H]):
    """One place of the pool; its handle is opened when it is first needed, and again after it was dropped."""

    def __init__(self) -> None:
        self.handle: H | None = None

    def drop(self) -> None:
        """Closes the handle. Runs in a thread."""
        handle, self.handle = self.handle, None
        if handle is not None:
            try:
                handle.close()
            except RuntimeError:
                logger.exception("handle_close_failed")


class Borrowed(Generic[H]):
    """One handle for the time of one statement; its calls run in the pool's threads, one after the other."""

    def __init__(self, pool: "HandlePool[H]", place: _Place[H], log_comment: str) -> None:
        self._pool = pool
        self._log_comment = log_comment
        self.place = place
        self.pending: asyncio.Future[object] | None = None
        self.discard = False
        """Whether the handle is closed at the end instead of going back; for a stream that was not read to its end."""

    async def call(self, function: Callable[[H], T]) -> T:
        """Runs `function` with the handle in a thread. A cancelled caller leaves at once and the statement is killed.

        A handle whose call failed is dropped. After a killed or failed statement the engine keeps the blocks that it
        had already made and puts them before the next statement's result (seen with 26.9), which may be another
        tenant's.
        """
        future = self._pool.submit(lambda: self._guarded(function))
        self.pending = future  # type: ignore[assignment]  # Future is invariant; only its end is awaited
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if not future.done():
                self._pool.kill_until_done(self._log_comment, future)
            raise

    def _guarded(self, function: Callable[[H], T]) -> T:
        try:
            if self.place.handle is None:
                self.place.handle = self._pool.open_handle()
            return function(self.place.handle)
        except BaseException:
            self.place.drop()
            raise


class HandlePool(Generic[H]):
    """`size` handles behind a semaphore, and the kill function that has a handle of its own.

    A semaphore and not a queue: a releaser that asks again at once starved others for seconds with a queue.
    """

    def __init__(self, open_handle: Callable[[], H], size: int, kill: Callable[[str], None]) -> None:
        self.open_handle = open_handle
        self._kill = kill
        self._size = size
        self._free: list[_Place[H]] = [_Place() for _ in range(size)]
        self._places = asyncio.Semaphore(size)
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="clickhouse")
        self._kill_thread = ThreadPoolExecutor(1, thread_name_prefix="clickhouse-kill")
        self._running: set[asyncio.Future[object]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def start(self) -> None:
        """Opens the handles, in the pool's threads, so that no statement waits for it later."""
        for place in self._free:
            # Shielded: where the start is cancelled, `close` waits for the thread and finds the handle in its place.
            await asyncio.shield(self.submit(partial(self._open_into, place)))

    def _open_into(self, place: _Place[H]) -> None:
        place.handle = self.open_handle()

    @property
    def busy(self) -> int:
        """How many handles are in use now."""
        return self._size - len(self._free)

    async def run(self, function: Callable[[H], T], log_comment: str, timeout_s: float) -> T:
        """Runs `function` with a handle in a thread, waiting for a free one first.

        Raises:
            DeadlineExceeded: The wait and the statement together took longer than `timeout_s`.
            BackendUnavailable: The pool is closed.
        """
        try:
            async with asyncio.timeout(timeout_s + GRACE_S), self.borrow(log_comment) as borrowed:
                return await borrowed.call(function)
        except TimeoutError:
            raise DeadlineExceeded("The database did not finish in time.") from None

    @asynccontextmanager
    async def borrow(self, log_comment: str) -> AsyncIterator[Borrowed[H]]:
        """Lends one handle. It goes back when the block ends and its last call has ended, whichever is later."""
        if self._closed:
            raise BackendUnavailable("The database is shutting down.")
        await self._places.acquire()
        if not self._free:  # closed while this waited
            self._places.release()
            raise BackendUnavailable("The database is shutting down.")
        borrowed = Borrowed(self, self._free.pop(), log_comment)
        try:
            yield borrowed
        finally:
            pending = borrowed.pending
            if borrowed.discard:
                self._spawn(self._discard_and_give_back(borrowed))
            elif pending is None or pending.done():
                self._give_back(borrowed.place)
            else:
                pending.add_done_callback(lambda _: self._give_back(borrowed.place))

    def submit(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Starts `function` in a thread; the future's exception counts as seen even if nobody awaits it."""
        future = asyncio.get_running_loop().run_in_executor(self._threads, function)
        self._running.add(future)  # type: ignore[arg-type]  # Future is invariant; only its end is awaited
        future.add_done_callback(self._ended)
        return future

    def kill_until_done(self, log_comment: str, future: asyncio.Future[T]) -> None:
        """Kills the statement with this mark, again until its thread ends.

        Once is not enough: the thread may not have reached the engine when the first KILL looks.
        """

        async def kill() -> None:
            loop = asyncio.get_running_loop()
            interval_s = _FIRST_KILL_INTERVAL_S
            while not future.done():
                try:
                    await loop.run_in_executor(self._kill_thread, self._kill, log_comment)
                except Exception:
                    logger.exception("kill_failed", extra={"log_comment": log_comment})
                await asyncio.wait({future}, timeout=interval_s)
                interval_s = min(interval_s * 2, _LAST_KILL_INTERVAL_S)

        self._spawn(kill())

    async def close(self) -> None:
        """Waits for running statements, then closes the handles. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        while self._running or self._tasks:
            await asyncio.gather(*self._running, *self._tasks, return_exceptions=True)
        places, self._free = self._free, []
        for place in places:
            await self.submit(place.drop)
        self._threads.shutdown()
        self._kill_thread.shutdown()

    def _give_back(self, place: _Place[H]) -> None:
        self._free.append(place)
        self._places.release()

    async def _discard_and_give_back(self, borrowed: Borrowed[H]) -> None:
        if borrowed.pending is not None:
            await asyncio.wait({borrowed.pending})
        await self.submit(borrowed.place.drop)
        self._give_back(borrowed.place)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _ended(self, future: asyncio.Future[T]) -> None:
        self._running.discard(future)
        if not future.cancelled():
            future.exception()
