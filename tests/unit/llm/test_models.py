"""Which client answers for the model that a request names."""

import pytest
from support.llm import ScriptedClient

from loom_llm.app.models import Models
from loom_llm.domain.client import LLMClient
from loom_llm.domain.selection import Provider, Selection, select


class Built:
    """Builds clients and notes for what."""

    def __init__(self) -> None:
        self.selections: list[Selection] = []

    async def __call__(self, selection: Selection) -> LLMClient:
        self.selections.append(selection)
        return ScriptedClient(provider=selection.provider, model=selection.model)


def models(built: Built, provider: Provider | None, keys: frozenset[Provider]) -> Models:
    served = select(provider, None, keys)
    return Models(served, ScriptedClient(provider=served.provider, model=served.model), keys, built)


BOTH: frozenset[Provider] = frozenset({"openai", "anthropic"})


@pytest.mark.parametrize(
    ("explicit", "keys", "model", "provider", "served"),
    [
        (None, BOTH, "claude-opus-5-5", "anthropic", "claude-opus-5-5"),
        ("anthropic", BOTH, "gpt-6.1-sol", "openai", "gpt-6.1-sol"),
        # A name that stands for no provider is one of a server that speaks the served one's API.
        ("openai", BOTH, "qwen3", "openai", "qwen3"),
        ("anthropic", BOTH, "qwen3", "anthropic", "qwen3"),
        # No key: the fake, under its own name.
        ("openai", frozenset({"openai"}), "claude-opus-5-5", "fake", "fake-echo-1"),
        (None, BOTH, "fake-echo-2", "fake", "fake-echo-2"),
        # Who asks for the fake gets nothing else.
        ("fake", BOTH, "gpt-6.1-sol", "fake", "fake-echo-1"),
    ],
)
async def test_the_provider_of_a_named_model_follows_from_its_name(
    explicit: Provider | None, keys: frozenset[Provider], model: str, provider: str, served: str
) -> None:
    built = Built()
    client = await models(built, explicit, keys).client(model)
    assert (client.provider, client.model) == (provider, served)


async def test_the_served_model_is_the_one_client_under_its_name_and_under_none() -> None:
    built = Built()
    found = models(built, "openai", BOTH)
    assert await found.client() is await found.client("gpt-6-luna")
    assert built.selections == []


async def test_a_model_is_built_once_and_the_longest_unused_one_is_forgotten() -> None:
    built = Built()
    found = models(built, "openai", BOTH)
    first = await found.client("gpt-first")
    for number in range(63):
        await found.client(f"gpt-{number}")
    assert await found.client("gpt-first") is first
    await found.client("gpt-one-more")
    assert await found.client("gpt-first") is first
    count = len(built.selections)
    await found.client("gpt-0")
    assert len(built.selections) == count + 1
