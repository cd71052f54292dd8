"""Who answers: an explicit provider, else the model's name, else a key, else the fake."""

import pytest

from loom_llm.domain.selection import Provider, Source, provider_of, select


@pytest.mark.parametrize(
    ("provider", "model", "keys", "served", "source"),
    [
        ("openai", None, {"openai"}, ("openai", "gpt-6-luna"), Source.EXPLICIT),
        ("anthropic", None, {"openai", "anthropic"}, ("anthropic", "claude-haiku-4-5"), Source.EXPLICIT),
        ("openai", "claude-x", {"openai"}, ("openai", "claude-x"), Source.EXPLICIT),
        ("fake", None, {"openai"}, ("fake", "fake-echo-1"), Source.EXPLICIT),
        ("fake", "gpt-6-sol", {"openai"}, ("fake", "fake-echo-1"), Source.EXPLICIT),
        (None, "claude-opus-5-5", {"openai", "anthropic"}, ("anthropic", "claude-opus-5-5"), Source.MODEL),
        (None, "o4-mini", {"openai"}, ("openai", "o4-mini"), Source.MODEL),
        (None, "fake-echo-2", {"openai"}, ("fake", "fake-echo-2"), Source.MODEL),
        (None, "qwen3:8b", {"openai"}, ("openai", "qwen3:8b"), Source.KEY),
        (None, None, {"openai", "anthropic"}, ("openai", "gpt-6-luna"), Source.KEY),
        (None, None, {"anthropic"}, ("anthropic", "claude-haiku-4-5"), Source.KEY),
        (None, None, set(), ("fake", "fake-echo-1"), Source.DEFAULT),
        (None, "qwen3:8b", set(), ("fake", "fake-echo-1"), Source.DEFAULT),
    ],
)
def test_the_first_rule_that_applies_decides(
    provider: Provider | None, model: str | None, keys: set[Provider], served: tuple[str, str], source: Source
) -> None:
    selection = select(provider, model, keys)
    assert (selection.provider, selection.model) == served
    assert selection.source is source
    assert not selection.key_missing


@pytest.mark.parametrize(("provider", "model"), [("openai", None), (None, "gpt-6-luna"), ("anthropic", "gpt-6-luna")])
def test_a_chosen_provider_without_its_key_is_the_fake_and_says_which_was_wanted(
    provider: Provider | None, model: str | None
) -> None:
    selection = select(provider, model, set())
    assert (selection.provider, selection.model) == ("fake", "fake-echo-1")
    assert selection.key_missing
    assert selection.wanted_provider == (provider or "openai")


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("claude-haiku-4-5", "anthropic"),
        ("gpt-6", "openai"),
        ("o1", "openai"),
        ("o3-mini", "openai"),
        ("chatgpt-x", "openai"),
        ("fake-echo-1", "fake"),
        ("o5", None),
        ("my-gpt", None),
    ],
)
def test_a_models_name_stands_for_its_provider(model: str, provider: str | None) -> None:
    assert provider_of(model) == provider
