"""No variable that the SDKs read by themselves changes what is sent, or to whom."""

import pytest
from support.providers import TEST_KEY, ProviderStandIn

from loom_llm.domain.messages import ChatRequest
from loom_llm.providers.anthropic import AnthropicWire
from loom_llm.providers.openai import OpenAIWire
from loom_llm.providers.sdk import Endpoint
from loom_llm.providers.wire import Wire

FOREIGN = {
    "ANTHROPIC_CUSTOM_HEADERS": "x-foreign: yes\nx-api-key: sk-foreign\nauthorization: Bearer sk-foreign",
    "ANTHROPIC_API_KEY": "sk-foreign",
    "ANTHROPIC_AUTH_TOKEN": "sk-foreign",
    "ANTHROPIC_BASE_URL": "http://127.0.0.1:1",
    "ANTHROPIC_PROFILE": "foreign",
    "OPENAI_CUSTOM_HEADERS": "x-foreign: yes\nauthorization: Bearer sk-foreign",
    "OPENAI_API_KEY": "sk-foreign",
    "OPENAI_ADMIN_KEY": "sk-foreign",
    "OPENAI_BASE_URL": "http://127.0.0.1:1/v1",
    "OPENAI_ORG_ID": "org-foreign",
    "OPENAI_PROJECT_ID": "project-foreign",
}


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_variables_of_the_sdks_change_nothing_that_is_sent(
    provider: str, stand_in: ProviderStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in FOREIGN:
        monkeypatch.delenv(variable, raising=False)
    await ask(provider, stand_in)
    for variable, value in FOREIGN.items():
        monkeypatch.setenv(variable, value)
    await ask(provider, stand_in)
    plain, *others = [(one.path, dict(one.headers), one.json) for one in stand_in.requests]
    assert len(others) == 3
    assert TEST_KEY in "".join(plain[1].values())
    assert plain == others[1]
    assert "foreign" not in str(others)


async def ask(provider: str, stand_in: ProviderStandIn) -> None:
    """Sends one whole request, and opens one stream."""
    wire: Wire
    if provider == "openai":
        wire = OpenAIWire(Endpoint(TEST_KEY, stand_in.openai_url, 5.0))
    else:
        wire = AnthropicWire(Endpoint(TEST_KEY, stand_in.anthropic_url, 5.0))
    request = ChatRequest.of_prompt("", "hi", 9)
    await wire.send("m", request, wire.wished(), 9)
    async for _ in wire.stream("m", request, wire.wished(), 9):
        pass
    await wire.aclose()
