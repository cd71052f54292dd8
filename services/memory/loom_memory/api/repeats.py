"""Writes that are sent again with their idempotency key."""

import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import TypeVar

from google.protobuf.message import Message

from loom_common.call import current
from loom_common.idempotency import IdempotencyKeys, KeyedRequest
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
        call = current()
        if not call.idempotency_key or call.claims is None:
            return await work()
        body = request.SerializeToString(deterministic=True)
        namespace = call.scope.namespace if call.scope else ""
        keyed = KeyedRequest(
            org=call.claims.org,
            # The token and the header also decide which memory a body means: what differs there is another request.
            subject=json.dumps([call.claims.sub, namespace, *narrowing(call.claims)]),
            op=call.op,
            key=call.idempotency_key,
            digest=hashlib.sha256(body).hexdigest(),
        )

        async def answer() -> bytes:
            return (await work()).SerializeToString(deterministic=True)

        return response.FromString(await self._keys.once(keyed, answer))
