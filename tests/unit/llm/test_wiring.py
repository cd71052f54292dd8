"""Which clients a process builds from its settings."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from loom_llm.app.fallback import FallbackClient
from loom_llm.app.models import Models
from loom_llm.app.watching import Healths
from loom_llm.domain.selection import select
from loom_llm.settings import LlmSettings
from loom_llm.wiring import open_clients, open_models

BOTH = {"OPENAI_API_KEY": "sk-one", "ANTHROPIC_API_KEY": "sk-two"}


@asynccontextmanager
async def opened(**variables: str) -> AsyncIterator[Models]:
    settings = LlmSettings.load(environ=variables)
    selection = select(settings.provider, settings.model, settings.keys)
    async with open_clients(settings) as clients:
        yield await open_models(selection, settings, clients, Healths())


async def test_the_fallback_stands_behind_every_model_but_itself() -> None:
    async with opened(**BOTH, LOOM_LLM_FALLBACK_MODEL="claude-haiku-4-5") as models:
        assert isinstance(await models.client(), FallbackClient)
        assert isinstance(await models.client("gpt-6.1-sol"), FallbackClient)
        assert not isinstance(await models.client("claude-haiku-4-5"), FallbackClient)
        assert (await models.client("claude-haiku-4-5")).provider == "anthropic"


@pytest.mark.parametrize(
    ("variables", "logged"),
    [
        ({"OPENAI_API_KEY": "sk-one"}, ["llm_fallback_key_missing"]),
        # The fake cannot fail, so nothing stands behind it.
        ({"LOOM_LLM_PROVIDER": "fake", "ANTHROPIC_API_KEY": "sk-two"}, []),
    ],
)
async def test_a_fallback_that_could_only_echo_is_not_used_and_is_named(
    variables: dict[str, str], logged: list[str]
) -> None:
    with capture_logs() as logs:
        async with opened(**variables, LOOM_LLM_FALLBACK_MODEL="claude-haiku-4-5") as models:
            assert not isinstance(await models.client(), FallbackClient)
    assert [line["event"] for line in logs] == logged


async def test_a_model_without_a_key_is_the_fake_and_is_named() -> None:
    with capture_logs() as logs:
        async with opened(OPENAI_API_KEY="sk-one") as models:
            client = await models.client("claude-opus-5-5")
    assert (client.provider, client.model) == ("fake", "fake-echo-1")
    assert [(line["event"], line["set"]) for line in logs] == [("llm_key_missing", "ANTHROPIC_API_KEY")]
