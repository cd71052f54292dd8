"""A real model behind OpenAI's API: what no stand-in can show. Run it by hand; `tests/support/local_model.py` says how.

TEST_OPENAI_BASE_URL=http://127.0.0.1:8899/v1 pytest -m local_model tests/integration/llm/test_local_model.py
"""

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from loom_common.json_text import without_fences
from loom_llm.domain.messages import ChatRequest, Message, Tool
from loom_llm.domain.traits import Traits
from loom_llm.providers.openai import OpenAIWire
from loom_llm.providers.sdk import Endpoint
from loom_llm.providers.shaped import ShapedClient

URL = os.environ.get("TEST_OPENAI_BASE_URL", "")
MODEL = "smollm2-135m"

pytestmark = [
    pytest.mark.local_model,
    pytest.mark.skipif(not URL, reason="TEST_OPENAI_BASE_URL names no server"),
]


@pytest.fixture
async def client() -> AsyncIterator[ShapedClient]:
    wire = OpenAIWire(Endpoint("none", URL, 60.0))
    yield ShapedClient(wire, MODEL, Traits(MODEL, wire.wished(), reserve_max=0))
    await wire.aclose()


async def test_a_prompt_is_answered_within_its_cap_and_counted(client: ShapedClient) -> None:
    result = await client.complete("You are brief.", "Name a colour.", 16)
    assert result.text.strip()
    assert result.input_tokens > 5
    assert 1 <= result.output_tokens <= 16


async def test_the_same_prompt_gets_the_same_answer(client: ShapedClient) -> None:
    answers = [(await client.complete("", "Name a colour.", 12)).text for _ in range(2)]
    assert answers[0] == answers[1]


async def test_a_stream_says_what_the_whole_answer_says(client: ShapedClient) -> None:
    whole = await client.complete("", "Count to five.", 24)
    deltas = [delta async for delta in client.chat(ChatRequest.of_prompt("", "Count to five.", 24))]
    result = deltas[-1].result
    assert result is not None
    assert "".join(delta.text for delta in deltas) == result.text == whole.text
    assert result.output_tokens == whole.output_tokens
    assert sum(1 for delta in deltas if delta.text) > 3


async def test_an_answer_that_reaches_its_cap_says_so(client: ShapedClient) -> None:
    result = await client.complete("", "Write a long story about the sea.", 8)
    assert (result.stop_reason, result.output_tokens) == ("length", 8)


async def test_json_is_json(client: ShapedClient) -> None:
    result = await client.complete(
        'Answer with a JSON object like {"colour": "red"}.', "Name a colour.", 64, {"type": "json_object"}
    )
    assert without_fences(result.text).lstrip().startswith("{")


async def test_a_conversation_with_tools_and_their_results_is_taken(client: ShapedClient) -> None:
    # The model is too small to ask for a call; that the server takes the request is what is seen.
    tool = Tool("weather", "Tells the weather.", '{"type": "object", "properties": {"town": {"type": "string"}}}')
    request = ChatRequest((Message("user", "Hello!"),), "You are brief.", tools=(tool,), max_tokens=12)
    deltas = [delta async for delta in client.chat(request)]
    assert deltas[-1].result is not None


async def test_a_stream_that_is_closed_leaves_the_server_free(client: ShapedClient) -> None:
    stream = client.chat(ChatRequest.of_prompt("", "Write a very long story about the sea.", 1000))
    first = await anext(stream)
    await stream.aclose()
    assert first.text or first.result is None
    async with asyncio.timeout(20):
        assert (await client.complete("", "Name a colour.", 4)).output_tokens > 0
