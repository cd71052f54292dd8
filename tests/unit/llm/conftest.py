"""What the llm service's tests share: a stand-in for the providers, and clients that never wait between attempts."""

from collections.abc import AsyncIterator, Callable

import pytest
from support.providers import TEST_KEY, ProviderStandIn

from loom_llm.providers.anthropic import AnthropicClient
from loom_llm.providers.openai import OpenAIClient


@pytest.fixture
async def stand_in() -> AsyncIterator[ProviderStandIn]:
    async with ProviderStandIn().running() as server:
        yield server


MakeClient = Callable[..., OpenAIClient | AnthropicClient]


@pytest.fixture
async def make_client(stand_in: ProviderStandIn) -> AsyncIterator[MakeClient]:
    """Makes a client of the provider that is named, against the stand-in."""
    made: list[OpenAIClient | AnthropicClient] = []

    def make(provider: str, *, timeout_s: float = 5.0) -> OpenAIClient | AnthropicClient:
        client: OpenAIClient | AnthropicClient
        if provider == "openai":
            client = OpenAIClient("gpt-6-luna", TEST_KEY, base_url=stand_in.openai_url, timeout_s=timeout_s)
        else:
            client = AnthropicClient("claude-haiku-4-5", TEST_KEY, base_url=stand_in.anthropic_url, timeout_s=timeout_s)
        made.append(client)
        return client

    yield make
    for client in made:
        await client.aclose()
