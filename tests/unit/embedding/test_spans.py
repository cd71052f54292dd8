"""Every request to a provider of vectors is a span of its own."""

import pytest
from support.embedding import MakeRig
from support.providers import ProviderStandIn, Reply
from support.spans import recorded_spans

from loom_common.errors import ProviderFailed


@pytest.mark.parametrize(
    ("provider", "named", "model", "tokens"),
    [
        ("openai", "openai", "text-embedding-3-small", {"gen_ai.usage.input_tokens": 6}),
        ("gemini", "gcp.gemini", "gemini-embedding-001", {}),  # it does not say what it counted
    ],
)
async def test_a_request_for_vectors_is_a_span_with_what_it_cost_and_no_word_of_a_text(
    provider: str,
    named: str,
    model: str,
    tokens: dict[str, int],
    rig: MakeRig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with recorded_spans(monkeypatch) as spans:
        await rig(provider).embedder.embed_many(["a secret", "another secret"])
    assert [span.name for span in spans.ended] == [f"embeddings {model}"]
    assert spans.attributes() == [
        {
            "gen_ai.operation.name": "embeddings",
            "gen_ai.provider.name": named,
            "gen_ai.request.model": model,
            **tokens,
        }
    ]
    assert "secret" not in spans.ended[0].to_json()


async def test_each_attempt_is_a_span_and_says_how_it_failed(
    stand_in: ProviderStandIn, rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in.script(Reply.error(503, "a secret"), Reply.error(401, "a secret"))
    with recorded_spans(monkeypatch) as spans, pytest.raises(ProviderFailed):
        await rig("openai").embedder.embed_many(["one"])
    assert [attributes["error.type"] for attributes in spans.attributes()] == ["503", "401"]
    assert not [span for span in spans.ended if "secret" in span.to_json()]
