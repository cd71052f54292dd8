"""Settings: names, defaults, one line for a bad value, keys that stay hidden."""

import json

import pytest

from loom_common.settings import SettingsError
from loom_llm.domain.endpoints import parse_classify_endpoints, parse_rerank_endpoints
from loom_llm.settings import LlmSettings
from loom_llm.wiring import with_room_for_models


def test_keys_are_read_by_their_providers_names_and_never_shown() -> None:
    settings = LlmSettings.load(environ={"OPENAI_API_KEY": "sk-hidden", "LOOM_LLM_PROVIDER": "OpenAI"})
    assert settings.provider == "openai"
    assert set(settings.keys) == {"openai"}
    assert "sk-hidden" not in repr(settings)


def test_an_empty_key_counts_as_none() -> None:
    assert LlmSettings.load(environ={"ANTHROPIC_API_KEY": "  "}).keys == {}


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("LOOM_LLM_PROVIDER", "gemini"),
        ("LOOM_OPENAI_BASE_URL", "localhost:8000"),
        ("LOOM_OPENAI_BASE_URL", "http://localhost:99999/v1"),
        ("LOOM_ANTHROPIC_BASE_URL", "http://localhost:65536"),
        ("LOOM_ANTHROPIC_BASE_URL", "http://localhost:0"),
        ("LOOM_INFERENCE_GATEWAY_HOSTS", "gateway.internal,10.0.0.1:99999"),
        ("LOOM_LLM_RETRY_ATTEMPTS", "0"),
        ("LOOM_LLM_REQUEST_TIMEOUT_S", "soon"),
        ("LOOM_LLM_OPENAI_REASONING_EFFORT", "extreme"),
        ("LOOM_LLM_ANTHROPIC_EFFORT", "none"),
        ("LOOM_LLM_HIDDEN_REASONING_RESERVE_MAX", "-1"),
    ],
)
def test_a_bad_value_is_one_line_that_names_the_variable(variable: str, value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        LlmSettings.load(environ={variable: value})
    assert variable in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("variable", ["OPENAI_API_KEY", "ANTHROPIC_API_KEY"])
@pytest.mark.parametrize("key", ["sk-one two", "“sk-pasted”", "sk-one\nsk-two", "sk-\u200bone"])
def test_a_key_that_no_header_can_carry_stops_the_start_and_is_not_shown(variable: str, key: str) -> None:
    with pytest.raises(SettingsError) as caught:
        LlmSettings.load(environ={variable: key})
    assert variable in str(caught.value)
    assert "printable ASCII" in str(caught.value)
    assert "sk-" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://localhost:65535/v1", "https://[::1]:1", "http://gateway.internal"])
def test_an_address_with_or_without_a_port_is_taken(url: str) -> None:
    assert LlmSettings.load(environ={"LOOM_ANTHROPIC_BASE_URL": url}).anthropic_base_url == url


def test_the_server_lets_a_model_take_its_whole_time() -> None:
    settings = LlmSettings.load(environ={"LOOM_LLM_TOTAL_DEADLINE_S": "1000"})
    assert with_room_for_models(settings).grpc_max_call_s > 1000


def test_rerankers_and_classifiers_are_read_by_their_names_and_their_headers_never_shown() -> None:
    settings = LlmSettings.load(
        environ={
            "LOOM_RERANK_ENDPOINTS_JSON": json.dumps(
                {
                    "bge": {"url": "http://me:sk-hidden@tei:80/rerank", "format": "tei", "timeout_s": 3},
                    "llama": {
                        "url": "http://llama:80/v1/rerank",
                        "model": "bge",
                        "scores": "logit",
                        "headers": {"Authorization": "Bearer sk-hidden"},
                    },
                }
            ),
            "LOOM_CLASSIFY_ENDPOINTS_JSON": '{"topics": {"url": "http://tei:80/predict", "min_score": 0}}',
        }
    )
    rerankers = parse_rerank_endpoints(settings.rerank_endpoints.get_secret_value())
    assert {name: (one.format, one.scores, one.address.timeout_s) for name, one in rerankers.items()} == {
        "bge": ("tei", "unit", 3.0),
        "llama": ("cohere", "logit", None),
    }
    assert rerankers["llama"].address.headers == {"Authorization": "Bearer sk-hidden"}
    assert parse_classify_endpoints(settings.classify_endpoints.get_secret_value())["topics"].min_score == 0
    assert "sk-hidden" not in f"{settings!r} {rerankers!r}"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("{", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("[]", "not an object"),
        ('{"a": 1}', "'a' is not an object"),
        ('{"builtin:x": {}}', "no name"),
        ('{"a b": {}}', "no name"),
        ('{"a": {}, "a": {}}', "there twice"),
        ('{"a": {"url": "file:///etc/passwd", "format": "tei"}}', "url of 'a'"),
        ('{"a": {"url": "http://x\\n", "format": "tei"}}', "url of 'a'"),
        ('{"a": {"url": "http://x", "formt": "tei"}}', "'formt'"),
        ('{"a": {"url": "http://x", "format": "xml"}}', "format of 'a'"),
        ('{"a": {"url": "http://x"}}', "needs model"),
        ('{"a": {"url": "http://x", "format": "tei", "scores": 1}}', "scores of 'a'"),
        ('{"a": {"url": "http://x", "format": "tei", "timeout_s": 0}}', "timeout_s of 'a'"),
        ('{"a": {"url": "http://x", "format": "tei", "headers": {"x": "sk-hidden\\n"}}}', "'x' of 'a'"),
        ('{"a": {"url": "http://x", "format": "tei", "headers": {"x:": "sk-hidden"}}}', "a header of 'a'"),
        ('{"a": {"url": "http://x", "format": "tei", "headers": {"Host": "y"}}}', "'Host' of 'a'"),
        ('{"a": {"url": "http://x", "format": "tei", "headers": {"x": "1", "X": "2"}}}', "the same name"),
    ],
)
def test_bad_rerankers_are_one_line_that_says_what_is_wrong_and_shows_no_secret(value: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        LlmSettings.load(environ={"LOOM_RERANK_ENDPOINTS_JSON": value})
    line = str(caught.value)
    assert line.startswith("LOOM_RERANK_ENDPOINTS_JSON")
    assert said in line
    assert "\n" not in line
    assert "sk-" not in line


@pytest.mark.parametrize(
    "value", ['{"a": {"url": "http://x", "min_score": 2}}', '{"a": {"url": "http://x", "format": "tei"}}']
)
def test_bad_classifiers_are_refused_too(value: str) -> None:
    with pytest.raises(SettingsError, match="LOOM_CLASSIFY_ENDPOINTS_JSON"):
        LlmSettings.load(environ={"LOOM_CLASSIFY_ENDPOINTS_JSON": value})
