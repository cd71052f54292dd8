"""Spans of calls to models: the conventions' names, Loom's own prompt names, and never a word of a prompt."""

from collections.abc import AsyncGenerator, Iterator, Mapping

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.trace import SpanKind, StatusCode, Tracer

from loom_common.providers import FailureKind, ProviderError
from loom_common.telemetry import genai
from loom_common.telemetry.genai import Operation, PromptRef, model_call, prompted


class Spans:
    def __init__(self, exporter: InMemorySpanExporter, tracer: Tracer) -> None:
        self.exporter = exporter
        self.tracer = tracer

    def only(self) -> ReadableSpan:
        (span,) = self.exporter.get_finished_spans()
        return span

    def attributes(self) -> Mapping[str, object]:
        return dict(self.only().attributes or {})


@pytest.fixture
def spans() -> Iterator[Spans]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield Spans(exporter, provider.get_tracer("test"))
    provider.shutdown()


def test_the_names_are_those_of_the_conventions() -> None:
    conventions = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}
    ours = {value for value in vars(genai).values() if isinstance(value, str) and value.startswith("gen_ai.")}
    assert len(ours) > 10
    assert ours <= conventions
    named = {operation.value for operation in gen_ai_attributes.GenAiOperationNameValues}
    assert {Operation.CHAT.value, Operation.TEXT_COMPLETION.value, Operation.EMBEDDINGS.value} <= named


def test_a_call_says_what_was_asked_how_it_ended_and_which_prompt_was_sent(spans: Spans) -> None:
    with (
        prompted(PromptRef("ask.synthesis", "3", "abc")),
        model_call(
            Operation.CHAT, "openai", "gpt-6-luna", max_tokens=9, temperature=0.0, json=True, tracer=spans.tracer
        ) as span,
    ):
        span.answered(
            model="gpt-6-luna-2026-09-22", input_tokens=11, output_tokens=7, cached_tokens=5, cache_write_tokens=2,
            finish_reasons=["stop"], response_id="r-1",
        )  # fmt: skip
    assert (spans.only().name, spans.only().kind) == ("chat gpt-6-luna", SpanKind.CLIENT)
    assert spans.attributes() == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-6-luna",
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.temperature": 0.0,
        "gen_ai.output.type": "json",
        "gen_ai.response.model": "gpt-6-luna-2026-09-22",
        "gen_ai.response.id": "r-1",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 11,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 5,
        "gen_ai.usage.cache_creation.input_tokens": 2,
        "loom.prompt.name": "ask.synthesis",
        "loom.prompt.version": "3",
        "loom.prompt.hash": "abc",
    }


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ProviderError("openai", FailureKind.STATUS, status=529), "529"),
        (ProviderError("openai", FailureKind.TIMEOUT), "timeout"),
        (RuntimeError("the prompt was: secret"), "RuntimeError"),
    ],
)
def test_a_failure_is_told_by_its_kind_and_never_by_its_words(spans: Spans, error: Exception, kind: str) -> None:
    with pytest.raises(type(error)), model_call(Operation.CHAT, "openai", "m", tracer=spans.tracer):
        raise error
    span = spans.only()
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, kind)
    assert spans.attributes()["error.type"] == kind
    assert not span.events
    assert "secret" not in span.to_json()


async def test_a_stream_that_is_given_up_ends_its_span_in_whatever_context(spans: Spans) -> None:
    async def stream() -> AsyncGenerator[int, None]:
        with model_call(Operation.CHAT, "openai", "m", stream=True, tracer=spans.tracer) as span:
            span.first_token()
            span.first_token()
            yield 1
            yield 2

    async for _ in (left := stream()):
        break
    await left.aclose()
    assert spans.only().status.status_code is StatusCode.UNSET
    assert spans.attributes()["gen_ai.request.stream"] is True
    assert isinstance(spans.attributes()["gen_ai.response.time_to_first_chunk"], float)


def test_vectors_have_no_output_type_and_gemini_its_conventions_name(spans: Spans) -> None:
    with model_call(Operation.EMBEDDINGS, "gemini", "gemini-embedding-001", tracer=spans.tracer) as span:
        span.answered(input_tokens=0)
    assert spans.attributes() == {
        "gen_ai.operation.name": "embeddings",
        "gen_ai.provider.name": "gcp.gemini",
        "gen_ai.request.model": "gemini-embedding-001",
    }
