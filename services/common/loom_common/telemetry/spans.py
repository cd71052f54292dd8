"""The span of a call that came in: child of its caller's, and current while the call runs.

OpenTelemetry's own way to make a span current costs several times the span, on every call and with nobody to read it.
"""

from collections.abc import Mapping
from typing import Final

from opentelemetry import propagate, trace
from opentelemetry.context import Context, attach, detach

_FIELDS: Final = frozenset(propagate.get_global_textmap().fields)
"""What a caller's trace travels in; nearly every call carries none of it where nobody traces."""


class ServerSpan:
    """A span around a block. What the block raises leaves no mark on it: whoever opens it says how the call ended.

    Args:
        tracer: Makes the span.
        name: Its name.
        carrier: Headers or metadata of the call, by lower-case name.
        attributes: What is known of the call as it begins.
    """

    __slots__ = ("_span", "_token")

    def __init__(
        self, tracer: trace.Tracer, name: str, carrier: Mapping[str, str], attributes: Mapping[str, str]
    ) -> None:
        parent = Context() if _FIELDS.isdisjoint(carrier) else propagate.extract(carrier)
        self._span = tracer.start_span(name, parent, trace.SpanKind.SERVER, dict(attributes))
        self._token = attach(trace.set_span_in_context(self._span, parent))

    def __enter__(self) -> trace.Span:
        return self._span

    def __exit__(self, *_error: object) -> None:
        self._span.end()
        detach(self._token)
