"""How many calls a server runs at once, and how many one caller may make."""

from typing import Any, Final

from loom_common.auth.claims import Claims
from loom_common.errors import Overloaded, RateLimited
from loom_common.interceptors.rpc import Proceed, Rpc, RpcInterceptor
from loom_common.ops import OpRole
from loom_common.rates import RateLimiter

_RETRY_AFTER_S: Final = 1.0
# No organisation can have this name.
_STRANGERS: Final = "\n"


class RateLimitInterceptor(RpcInterceptor):
    """Refuses calls beyond the rate of their token or of their organisation. Stands inside authentication.

    A token shares its rate with those that were made from it, and with those of the same sign-in: making more of them
    makes no more calls. Calls that services make for themselves are not limited; those they pass on count as their
    caller's. What may be called without a token has one rate for all who have none.

    Args:
        limiter: The rates of one token.
        org_times: How many times that rate is an organisation's.
    """

    def __init__(self, limiter: RateLimiter, org_times: float = 4.0) -> None:
        self._limiter = limiter
        self._org_times = org_times

    async def around(self, rpc: Rpc, request: Any, proceed: Proceed) -> Any:
        """See `RpcInterceptor.around`."""
        op, claims = rpc.op, rpc.call.claims
        if op is not None and not op.internal and (claims is not None or op.role is OpRole.OPEN):
            wait_s = self._limiter.take_each(op.rate_class, self._counted_for(claims))
            if wait_s > 0:
                raise RateLimited(
                    "Too many calls in a short time; send it again a little later.",
                    detail={"rate_class": op.rate_class},
                    retry_after_s=wait_s,
                )
        return await proceed(rpc, request)

    def _counted_for(self, claims: Claims | None) -> dict[str, float]:
        if claims is None:
            return {_STRANGERS: self._org_times}
        first = claims.sid or (claims.parents[-1] if claims.parents else claims.jti)
        return {f"{claims.org}\n{first}": 1.0, claims.org: self._org_times}


class ConcurrencyInterceptor(RpcInterceptor):
    """Refuses calls beyond what a server runs at once, before they cost anything. Streams that answer do not count."""

    def __init__(self, max_calls: int) -> None:
        self._max_calls = max_calls
        self._running = 0

    async def around(self, rpc: Rpc, request: Any, proceed: Proceed) -> Any:
        """See `RpcInterceptor.around`."""
        if rpc.op is not None and rpc.op.response_streaming:
            return await proceed(rpc, request)
        if self._running >= self._max_calls:
            raise Overloaded(
                "The service is at its limit of concurrent calls; send it again a little later.",
                retry_after_s=_RETRY_AFTER_S,
            )
        self._running += 1
        try:
            return await proceed(rpc, request)
        finally:
            self._running -= 1
