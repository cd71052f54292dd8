"""One call to another service as its caller sees it: a span, a duration, and the trace that it hands on.

OpenTelemetry's own client instrumentation waits for the status of a call and not for the call itself, so that a caller
that leaves would not end the work at the peer.
"""

import asyncio
import time
from types import TracebackType
from typing import Final, Self

import grpc
from opentelemetry import propagate, trace

from loom_common import telemetry
from loom_common.errors import LoomError
from loom_common.ops import op_by_method

_tracer: Final = trace.get_tracer("loom_common")


class Outgoing:
    """Observes one call: a context manager around its answer or its stream."""

    def __init__(self, method: str | bytes) -> None:
        path = method.decode() if isinstance(method, bytes) else method
        service, _, name = path.lstrip("/").rpartition("/")
        op = op_by_method(path)
        self._peer = op.owner if op is not None else service
        self._op = op.name if op is not None else name
        self._begun_s = time.monotonic()
        attributes = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name}
        self._span = _tracer.start_span(path.lstrip("/"), kind=trace.SpanKind.CLIENT, attributes=attributes)

    def trace_headers(self) -> dict[str, str]:
        """Returns the metadata by which the peer's span becomes this one's child."""
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(self._span))
        return carrier

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        code = _code_of(error)
        self._span.set_attribute("rpc.grpc.status_code", int(code.value[0]))
        if code is not grpc.StatusCode.OK:
            self._span.set_status(trace.StatusCode.ERROR, code.name)
        self._span.end()
        elapsed_s = time.monotonic() - self._begun_s
        telemetry.observe("loom.rpc.client.duration", elapsed_s, peer=self._peer, op=self._op, code=code.name)


def _code_of(error: BaseException | None) -> grpc.StatusCode:
    match error:
        case None:
            return grpc.StatusCode.OK
        case LoomError():
            return error.row.grpc
        case asyncio.CancelledError() | GeneratorExit():
            return grpc.StatusCode.CANCELLED
        case _:
            return grpc.StatusCode.UNKNOWN
