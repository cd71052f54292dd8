"""Counts and durations of RPCs, by operation and outcome."""

from typing import Any

from loom_common import telemetry
from loom_common.interceptors.rpc import OK_OUTCOME, Proceed, Rpc, RpcInterceptor


class MetricsInterceptor(RpcInterceptor):
    """Measures each operation."""

    def __init__(self, service: str) -> None:
        self._service = service

    async def around(self, rpc: Rpc, request: Any, proceed: Proceed) -> Any:
        """See `RpcInterceptor.around`."""
        named = {"service": self._service, "op": rpc.call.op}
        telemetry.add("loom.rpc.server.active", 1, **named)
        try:
            return await proceed(rpc, request)
        finally:
            telemetry.add("loom.rpc.server.active", -1, **named)
            telemetry.observe("loom.rpc.server.duration", rpc.elapsed_ms() / 1000, **named, code=rpc.status_code().name)
            if rpc.outcome != OK_OUTCOME:
                telemetry.add("loom.rpc.server.errors", 1, **named, reason=rpc.outcome)
