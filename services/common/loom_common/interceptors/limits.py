"""How many calls a server runs at once, and how many one caller may make."""

import contextlib
from collections.abc import AsyncIterator
from typing import Final

from loom_common.errors import Overloaded, RateLimited
from loom_common.interceptors.rpc import Rpc, RpcInterceptor
from loom_common.rates import RateLimiter

_RETRY_AFTER_S: Final = 1.0


class RateLimitInterceptor(RpcInterceptor):
    """Refuses a caller that calls more often than its rate. Stands inside authentication: what is not known has none.

    Calls that services make for themselves are not limited; those they pass on count as their caller's.
    """

    def __init__(self, limiter: RateLimiter) -> None:
        self._limiter = limiter

    @contextlib.asynccontextmanager
    async def around(self, rpc: Rpc) -> AsyncIterator[None]:
        """See `RpcInterceptor.around`."""
        op, claims = rpc.op, rpc.call.claims
        if op is not None and claims is not None and not op.internal:
            wait_s = self._limiter.take(op.rate_class, f"{claims.org}\n{claims.sub}")
            if wait_s > 0:
                raise RateLimited(
                    "Too many calls in a short time; send it again a little later.",
                    detail={"rate_class": op.rate_class},
                    retry_after_s=wait_s,
                )
        yield


class ConcurrencyInterceptor(RpcInterceptor):
    """Refuses calls beyond what a server runs at once, before they cost anything. Streams that answer do not count."""

    def __init__(self, max_calls: int) -> None:
        self._max_calls = max_calls
        self._running = 0

    @contextlib.asynccontextmanager
    async def around(self, rpc: Rpc) -> AsyncIterator[None]:
        """See `RpcInterceptor.around`."""
        if rpc.op is not None and rpc.op.response_streaming:
            yield
            return
        if self._running >= self._max_calls:
            raise Overloaded(
                "The service is at its limit of concurrent calls; send it again a little later.",
                retry_after_s=_RETRY_AFTER_S,
            )
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
