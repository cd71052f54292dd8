"""Counts and durations of RPCs, by operation and outcome."""

import contextlib
from collections.abc import AsyncIterator

from loom_common import telemetry
from loom_common.interceptors.rpc import OK_OUTCOME, Rpc, RpcInterceptor


class MetricsInterceptor(RpcInterceptor):
    """Measures each operation."""

    def __init__(self, service: str) -> None:
        self._service = service

    @contextlib.asynccontextmanager
    async def around(self, rpc: Rpc) -> AsyncIterator[None]:
        """See `RpcInterceptor.around`."""
        named = {"service": self._service, "op": rpc.call.op}
        telemetry.add("loom.rpc.server.active", 1, **named)
        try:
            yield
        finally:
            telemetry.add("loom.rpc.server.active", -1, **named)
            telemetry.observe("loom.rpc.server.duration", rpc.elapsed_ms() / 1000, **named, code=rpc.status_code().name)
            if rpc.outcome != OK_OUTCOME:
                telemetry.add("loom.rpc.server.errors", 1, **named, reason=rpc.outcome)
