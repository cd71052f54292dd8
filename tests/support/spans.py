"""The spans that a test's calls to models leave, in memory."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class ModelSpans:
    """The spans of calls to models that have ended."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    @property
    def ended(self) -> list[ReadableSpan]:
        """In the order in which they ended."""
        spans = self._exporter.get_finished_spans()
        return [span for span in spans if "gen_ai.operation.name" in (span.attributes or {})]

    def attributes(self) -> list[Mapping[str, object]]:
        """Returns the attributes of each."""
        return [dict(span.attributes or {}) for span in self.ended]


@contextmanager
def recorded_spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelSpans]:
    """Records the spans of the block; a process can set its tracer provider once, so it is lent one instead."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with monkeypatch.context() as patched:
        patched.setattr(trace, "get_tracer_provider", lambda: provider)
        yield ModelSpans(exporter)
    provider.shutdown()
