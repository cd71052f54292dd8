"""Every request to a model of text is a span of its own: what was asked, how it ended, which prompt was sent."""

from collections.abc import Callable, Iterator

import pytest
from support.provider_streams import anthropic_events, openai_events
from support.providers import Fault, ProviderStandIn, Reply
from support.spans import ModelSpans, recorded_spans

from loom_common.prompts import reference
from loom_common.providers import ProviderError
from loom_common.telemetry.genai import prompted
from loom_llm.domain.messages import ChatRequest, Message
from loom_llm.domain.prompts.structured_output import JSON_DIRECTIVE
from loom_llm.providers.shaped import ShapedClient

MakeClient = Callable[..., ShapedClient]

PROVIDERS = pytest.mark.parametrize(
    ("provider", "model"), [("openai", "gpt-6-luna"), ("anthropic", "claude-haiku-4-5")]
)
QUESTION = ChatRequest((Message("user", "a secret"),), "another secret", max_tokens=9)


@pytest.fixture(autouse=True)
def content_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asks an SDK for spans of its own, with prompts in them, as an operator's environment may."""
    monkeypatch.setenv("ANTHROPIC_OPEN_TELEMETRY_TRACES_CONTENT_MODE", "content")


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelSpans]:
    with recorded_spans(monkeypatch) as found:
        yield found


@PROVIDERS
async def test_a_whole_answer_is_one_span_with_its_cost_and_its_prompt(
    provider: str, model: str, make_client: MakeClient, spans: ModelSpans
) -> None:
    with prompted(reference("structured_output", "json_directive", JSON_DIRECTIVE.version)):
        await make_client(provider).complete("another secret", "a secret", 9, {"type": "json_object"})
    assert [span.name for span in spans.ended] == [f"chat {model}"]
    assert spans.attributes() == [
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": model,
            "gen_ai.request.max_tokens": 9,
            "gen_ai.request.temperature": 0.0,
            "gen_ai.output.type": "json",
            "gen_ai.response.model": model,
            "gen_ai.response.id": "chatcmpl-1" if provider == "openai" else "msg_1",
            "gen_ai.response.finish_reasons": ("stop",),
            "gen_ai.usage.input_tokens": 11,
            "gen_ai.usage.output_tokens": 7,
            "loom.prompt.name": "structured_output.json_directive",
            "loom.prompt.version": JSON_DIRECTIVE.version,
            "loom.prompt.hash": JSON_DIRECTIVE.hash,
        }
    ]
    assert "secret" not in spans.ended[0].to_json()


@PROVIDERS
async def test_a_stream_is_one_span_until_its_end(
    provider: str, model: str, make_client: MakeClient, spans: ModelSpans
) -> None:
    async for _ in make_client(provider).chat(QUESTION):
        pass
    [attributes] = spans.attributes()
    assert attributes["gen_ai.request.stream"] is True
    assert attributes["gen_ai.response.id"] == ("chatcmpl-1" if provider == "openai" else "msg_1")
    assert attributes["gen_ai.usage.output_tokens"] == 7
    assert isinstance(attributes["gen_ai.response.time_to_first_chunk"], float)


@PROVIDERS
async def test_each_request_is_a_span_a_refused_and_a_broken_one_too(
    provider: str, model: str, stand_in: ProviderStandIn, make_client: MakeClient, spans: ModelSpans
) -> None:
    events = openai_events if provider == "openai" else anthropic_events
    stand_in.script(
        Reply.error(400, "temperature is not supported, says a secret"),
        Reply.error(529),
        Reply(events=events("one two")[:4], fault=Fault.CUT),
    )
    client = make_client(provider)
    with pytest.raises(ProviderError):
        await client.complete("", "hi")
    with pytest.raises(ProviderError):
        async for _ in client.chat(QUESTION):
            pass
    assert [attributes["error.type"] for attributes in spans.attributes()] == ["400", "529", "connection"]
    assert [attributes.get("gen_ai.request.temperature") for attributes in spans.attributes()] == [0.0, None, None]
    assert not [span for span in spans.ended if "secret" in span.to_json()]
