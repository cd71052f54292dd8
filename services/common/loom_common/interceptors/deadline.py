"""Ends calls that take longer than their caller, or the server, waits."""

import asyncio
import time
from typing import Any

from loom_common.errors import DeadlineExceeded
from loom_common.interceptors.rpc import Proceed, Rpc, RpcInterceptor


class DeadlineInterceptor(RpcInterceptor):
    """Bounds each call by its caller's deadline, and one that answers a single message by the server's longest time.

    Stands innermost, so that what it ends is the service's own work. A stream may run for as long as its caller reads.
    """

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s

    async def around(self, rpc: Rpc, request: Any, proceed: Proceed) -> Any:
        """See `RpcInterceptor.around`."""
        if rpc.op is not None and not rpc.op.response_streaming:
            longest = time.monotonic() + self._longest_s
            rpc.call.deadline = longest if rpc.call.deadline is None else min(rpc.call.deadline, longest)
        rpc.handled = True
        limit = asyncio.timeout(rpc.call.time_left_s())
        try:
            async with limit:
                return await proceed(rpc, request)
        except TimeoutError:
            if not limit.expired():
                raise
            raise DeadlineExceeded("The call did not end within its time. Allow it more, or ask for less.") from None
