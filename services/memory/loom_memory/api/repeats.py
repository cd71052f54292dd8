"""Writes that are sent again with their idempotency key."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from google.protobuf.message import Message

from loom_common.call import current
from loom_common.idempotency import IdempotencyKeys, keyed_request
from loom_memory.app.access import narrowing

M = TypeVar("M", bound=Message)


class Repeats:
    """Answers a repeated call as the first was answered, where the caller named a key."""

    def __init__(self, keys: IdempotencyKeys) -> None:
        self._keys = keys

    async def once(self, request: Message, response: type[M], work: Callable[[], Awaitable[M]]) -> M:
        """Returns what `work` answers, or what it answered to the same key.

        Raises:
            Conflict: The key came with another body, or the same call is still under way.
        """
        claims = current().claims
        # What a token reads also decides which memory a body means.
        keyed = keyed_request(request, *narrowing(claims)) if claims is not None else None
        if keyed is None:
            return await work()

        async def answer() -> bytes:
            return (await work()).SerializeToString(deterministic=True)

        return response.FromString(await self._keys.once(keyed, answer))
