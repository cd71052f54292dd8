"""Settings: names, defaults, one line for a bad value, keys that stay hidden."""

import pytest

from loom_common.settings import SettingsError
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


def test_the_server_lets_a_model_take_its_whole_time() -> None:
    settings = LlmSettings.load(environ={"LOOM_LLM_TOTAL_DEADLINE_S": "1000"})
    assert with_room_for_models(settings).grpc_max_call_s > 1000
