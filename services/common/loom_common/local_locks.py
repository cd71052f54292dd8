"""One lock per key inside this process, for as long as somebody wants it."""

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager


class KeyedLocks:
    """Locks by key; a key that nobody waits for takes no memory."""

    def __init__(self) -> None:
        self._held: dict[Hashable, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def one(self, key: Hashable, *, wait_s: float | None = None) -> AsyncIterator[None]:
        """Holds `key` for the block, after waiting for it for up to `wait_s`; None = for as long as it takes.

        Raises:
            TimeoutError: Others held it all the time. It comes before the block, never out of it.
        """
        lock, users = self._held.get(key, (asyncio.Lock(), 0))
        self._held[key] = (lock, users + 1)
        try:
            async with asyncio.timeout(wait_s):
                await lock.acquire()
            try:
                yield
            finally:
                lock.release()
        finally:
            lock, users = self._held[key]
            if users == 1:
                del self._held[key]
            else:
                self._held[key] = (lock, users - 1)

    @asynccontextmanager
    async def all_of(self, keys: Iterable[tuple[str, ...]]) -> AsyncIterator[None]:
        """Holds every key for the block; taken in the keys' order, so that two callers never wait for each other."""
        async with AsyncExitStack() as stack:
            for key in sorted(set(keys)):
                await stack.enter_async_context(self.one(key))
            yield
