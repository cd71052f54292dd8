"""What the llm service's tests share: a stand-in for the providers, and clients against it."""

from collections.abc import AsyncIterator, Callable

import httpx2
import pytest
from support.providers import TEST_KEY, ProviderStandIn

from loom_llm.domain.traits import Traits
from loom_llm.providers.anthropic import AnthropicWire
from loom_llm.providers.openai import OpenAIWire
from loom_llm.providers.sdk import Endpoint
from loom_llm.providers.shaped import ShapedClient
from loom_llm.providers.wire import Wire

MODELS = {"openai": "gpt-6-luna", "anthropic": "claude-haiku-4-5"}


@pytest.fixture
async def stand_in() -> AsyncIterator[ProviderStandIn]:
    async with ProviderStandIn().running() as server:
        yield server


MakeClient = Callable[..., ShapedClient]


@pytest.fixture
async def make_client(stand_in: ProviderStandIn) -> AsyncIterator[MakeClient]:
    """Makes a client of the provider that is named, against the stand-in."""
    made: list[Wire] = []

    def make(
        provider: str,
        *,
        timeout_s: float = 5.0,
        url: str | None = None,
        effort: str | None = None,
        reserve_max: int = 25_000,
        learning_wait_s: float = 2.0,
        http_client: httpx2.AsyncClient | None = None,
    ) -> ShapedClient:
        urls = {"openai": stand_in.openai_url, "anthropic": stand_in.anthropic_url}
        endpoint = Endpoint(TEST_KEY, url or urls[provider], timeout_s, http_client)
        wire: Wire
        wire = OpenAIWire(endpoint, effort=effort) if provider == "openai" else AnthropicWire(endpoint, effort=effort)
        made.append(wire)
        model = MODELS[provider]
        traits = Traits(model, wire.wished(), reserve_max=reserve_max, learning_wait_s=learning_wait_s)
        return ShapedClient(wire, model, traits)

    yield make
    for wire in made:
        await wire.aclose()
