"""Loads the protocol when it is first needed, or once a start is over.

Its libraries take more than a second to load, most of it for models of messages. A start must not wait for that, and
the first caller seldom has to.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from loom_gateway.mcp.protocol import Protocol

# Source: chosen. By then whoever waited for the start has had a first answer, and loading takes no time from it.
_IDLE_S: Final = 10.0


class LazyProtocol:
    """The protocol of one endpoint: loaded in a thread, then served in a task of its own."""

    def __init__(self, load: "Callable[[], Protocol]", *, idle_s: float = _IDLE_S) -> None:
        """Takes what loads it.

        Args:
            load: Imports and builds the protocol; blocking.
            idle_s: Units: seconds until it is loaded although nobody asked for it.
        """
        self._load = load
        self._idle_s = idle_s
        self._wanted = asyncio.Event()
        self._left = asyncio.Event()
        self._opened: asyncio.Future[Protocol] | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serves while entered; can be entered once."""
        self._opened = asyncio.get_running_loop().create_future()
        # A task of its own: the transport must be left by the task that entered it, which no request's may be.
        task = asyncio.create_task(self._serve(self._opened), name="mcp-protocol")
        try:
            yield
        finally:
            self._left.set()
            if not self._opened.done():
                task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()

    async def get(self) -> "Protocol":
        """Returns the protocol once it serves; every caller gets the same failure where it cannot be loaded."""
        assert self._opened is not None, "entered by the application's lifespan"
        self._wanted.set()
        return await asyncio.shield(self._opened)

    async def _serve(self, opened: "asyncio.Future[Protocol]") -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._idle_s):
                await self._wanted.wait()
        try:
            protocol = await asyncio.to_thread(self._load)
            async with protocol.running():
                opened.set_result(protocol)
                await self._left.wait()
        except Exception as error:
            if opened.done():
                raise
            # Each request that needs it raises it, and is logged.
            opened.set_exception(error)
