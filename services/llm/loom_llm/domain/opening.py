"""Opens streams of answers so far that something can be seen: until then, another request may take their place."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from loom_common.providers import FailureKind, ProviderError
from loom_llm.domain.messages import Delta


@dataclass(frozen=True, slots=True)
class OpenStream:
    """A stream of which something can be seen, or that has ended."""

    begun: tuple[Delta, ...]
    """What came so far; the last of them is visible or ends the answer."""
    rest: AsyncGenerator[Delta, None]

    async def deltas(self) -> AsyncGenerator[Delta, None]:
        """Yields the whole stream; closing it closes what is behind it."""
        async with aclosing(self.rest):
            for delta in self.begun:
                yield delta
            async for delta in self.rest:
                yield delta


async def opened(stream: AsyncGenerator[Delta, None]) -> OpenStream:
    """Returns the stream once something of it can be seen; one that fails before is closed."""
    begun = []
    try:
        async for delta in stream:
            begun.append(delta)
            if delta.visible or delta.result is not None:
                break
    except BaseException:
        await stream.aclose()
        raise
    return OpenStream(tuple(begun), stream)


async def until(stream: AsyncGenerator[Delta, None], ends_s: float, provider: str) -> AsyncGenerator[Delta, None]:
    """Yields a stream, and cuts it where it has not ended in time.

    Args:
        stream: The stream; it is closed.
        ends_s: When it must have ended, on the clock of `time.monotonic`. Units: seconds.
        provider: Name for the failure.

    Raises:
        ProviderError: It has not.
    """
    async with aclosing(stream):
        while True:
            # Around each piece alone: a limit around a `yield` would cut what the reader does in between.
            limit = asyncio.timeout(max(0.0, ends_s - time.monotonic()))
            try:
                async with limit:
                    delta = await anext(stream, None)
            except TimeoutError:
                if not limit.expired():
                    raise
                raise ProviderError(provider, FailureKind.TIMEOUT) from None
            if delta is None:
                return
            yield delta
            # Pieces that are here already would else go on for ever. Not before the first: what never began to run
            # closes nothing.
            if delta.result is None and time.monotonic() >= ends_s:
                raise ProviderError(provider, FailureKind.TIMEOUT)
