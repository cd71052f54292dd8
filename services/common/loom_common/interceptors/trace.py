"""One span for each RPC, child of the caller's.

OpenTelemetry's own instrumentation of gRPC drives every streaming handler as a generator, which breaks handlers that
write for themselves (gRPC's own health service does) and leaves spans open when a caller goes away.
"""

from typing import Any, Final

from opentelemetry import trace

from loom_common.interceptors.rpc import OK_OUTCOME, Proceed, Rpc, RpcInterceptor
from loom_common.telemetry.spans import ServerSpan

# Failures of the service; what the caller did wrong leaves the span's status unset, as the conventions for servers say.
_FAULTS: Final = frozenset({2, 4, 12, 13, 14, 15})


class TraceInterceptor(RpcInterceptor):
    """Opens a server span around each operation."""

    def __init__(self, tracer: trace.Tracer | None = None) -> None:
        """Takes a tracer. Default: the process's own."""
        self._tracer = tracer or trace.get_tracer("loom_common")

    async def around(self, rpc: Rpc, request: Any, proceed: Proceed) -> Any:
        """See `RpcInterceptor.around`."""
        service, _, name = rpc.method[1:].rpartition("/")
        attributes = {
            "rpc.system": "grpc",
            "rpc.service": service,
            "rpc.method": name,
            "loom.op": rpc.call.op,
            "loom.request_id": rpc.call.request_id,
        }
        with ServerSpan(self._tracer, rpc.method[1:], rpc.headers, attributes) as span:
            try:
                return await proceed(rpc, request)
            finally:
                if span.is_recording():
                    _close(span, rpc)


def _close(span: trace.Span, rpc: Rpc) -> None:
    number = int(rpc.status_code().value[0])
    span.set_attribute("rpc.grpc.status_code", number)
    if rpc.outcome != OK_OUTCOME:
        span.set_attribute("loom.reason", rpc.outcome)
    if number in _FAULTS:
        span.set_status(trace.StatusCode.ERROR, rpc.outcome)
