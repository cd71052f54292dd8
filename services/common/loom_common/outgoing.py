"""One call to another service as its caller sees it: a span, a duration, and the trace that it hands on.

OpenTelemetry's own client instrumentation waits for the status of a call and not for the call itself, so that a caller
that leaves would not end the work at the peer.
"""

import asyncio
import functools
import time
from types import TracebackType
from typing import Final, NamedTuple, Self

import grpc
from opentelemetry import propagate, trace

from loom_common import telemetry
from loom_common.errors import LoomError
from loom_common.ops import op_by_method

_tracer: Final = trace.get_tracer("loom_common")


class _Told(NamedTuple):
    """What is said of every call of one method."""

    peer: str
    op: str
    span: str
    attributes: dict[str, str]


@functools.cache
def _told(method: str | bytes) -> _Told:
    path = method.decode() if isinstance(method, bytes) else method
    service, _, name = path.lstrip("/").rpartition("/")
    op = op_by_method(path)
    attributes = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name}
    return _Told(op.owner if op else service, op.name if op else name, path.lstrip("/"), attributes)


class Outgoing:
    """Observes one call: a context manager around its answer or its stream."""

    def __init__(self, method: str | bytes) -> None:
        self._told = told = _told(method)
        self._begun_s = time.monotonic()
        self._span = _tracer.start_span(told.span, kind=trace.SpanKind.CLIENT, attributes=told.attributes)

    def trace_headers(self) -> dict[str, str]:
        """Returns the metadata by which the peer's span becomes this one's child."""
        carrier: dict[str, str] = {}
        if self._span is trace.INVALID_SPAN:
            return carrier  # nobody traces, neither here nor at the caller
        propagate.inject(carrier, trace.set_span_in_context(self._span))
        return carrier

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        code = _code_of(error)
        if self._span.is_recording():
            self._span.set_attribute("rpc.grpc.status_code", int(code.value[0]))
            if code is not grpc.StatusCode.OK:
                self._span.set_status(trace.StatusCode.ERROR, code.name)
        self._span.end()
        elapsed_s, told = time.monotonic() - self._begun_s, self._told
        telemetry.observe("loom.rpc.client.duration", elapsed_s, peer=told.peer, op=told.op, code=code.name)


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
