"""The adapter of the OpenAI Agents SDK over a running Loom, with the real package and a model that is written here."""

import json
import sys
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support.up import UpProcess

from loom_client import AsyncLoom

agents = pytest.importorskip(
    "agents", reason="The Agents SDK is not installed: `pip install openai-agents` in this environment tries it"
)
responses = pytest.importorskip("openai.types.responses")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "integrations" / "openai-agents"))
from loom_openai_agents import LoomSession, memory_tools  # noqa: E402  # found by the line above

NUMBERS = count()


@pytest.fixture(autouse=True)
def no_traces() -> None:
    agents.set_tracing_disabled(True)


class Scripted(agents.Model):  # type: ignore[misc, name-defined]  # the package is not installed where types are checked
    """A model that says what it is told to, and keeps what it was asked."""

    def __init__(self, *turns: list[Any]) -> None:
        self.turns = list(turns)
        self.asked: list[list[Any]] = []

    async def get_response(self, **asked: Any) -> Any:
        given = asked["input"]
        self.asked.append([{"role": "user", "content": given}] if isinstance(given, str) else list(given))
        return agents.ModelResponse(output=self.turns.pop(0), usage=agents.Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


def says(text: str) -> list[Any]:
    part = responses.ResponseOutputText(type="output_text", text=text, annotations=[])
    return [
        responses.ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[part])
    ]


def calls(name: str, **arguments: Any) -> list[Any]:
    given = json.dumps(arguments)
    return [
        responses.ResponseFunctionToolCall(
            type="function_call", call_id=f"c{next(NUMBERS)}", name=name, arguments=given
        )
    ]


def tool_answers(asked: list[Any]) -> list[str]:
    return [item["output"] for item in asked if item.get("type") == "function_call_output"]


async def test_an_agent_remembers_in_one_run_and_recalls_in_another(up: UpProcess) -> None:
    async with AsyncLoom(up.http_url, up.token) as loom:
        tools = memory_tools(loom, user_id="agents-ana", agent="helper")
        fact = "Ana keeps her bees on the roof of the library"
        model = Scripted(
            calls("remember", text=fact, kind="fact"),
            calls("remember", text=fact, kind="fact"),
            says("I will remember it."),
        )
        agent = agents.Agent(name="helper", model=model, tools=tools)
        done = await agents.Runner.run(agent, "My bees live on the library's roof")
        assert done.final_output == "I will remember it."
        assert tool_answers(model.asked[-1]) == ["Remembered.", "Known already."]
        model.turns = [calls("recall", question="where are Ana's bees?"), says("On the roof.")]
        await agents.Runner.run(agent, "Where are my bees?")
        [told] = tool_answers(model.asked[-1])
        assert "roof of the library" in told
        assert "<<data " in told
        other = Scripted(calls("recall", question="where are Ana's bees?"), says("I do not know."))
        stranger = agents.Agent(name="helper", model=other, tools=memory_tools(loom, user_id="agents-ben"))
        await agents.Runner.run(stranger, "Where are Ana's bees?")
        assert "roof" not in tool_answers(other.asked[-1])[0]


async def test_a_refusal_is_told_to_the_model_and_the_run_goes_on(up: UpProcess) -> None:
    async with AsyncLoom(up.http_url, "no token") as loom:
        model = Scripted(calls("recall", question="anything?"), says("My memory is away."))
        agent = agents.Agent(name="helper", model=model, tools=memory_tools(loom))
        assert (await agents.Runner.run(agent, "hello")).final_output == "My memory is away."
        assert "UNAUTHENTICATED" in tool_answers(model.asked[-1])[0]


async def test_the_tools_describe_themselves_and_what_they_take(up: UpProcess) -> None:
    async with AsyncLoom(up.http_url, up.token) as loom:
        remember, recall = memory_tools(loom)
    assert (remember.name, recall.name) == ("remember", "recall")
    assert "later conversations" in remember.description
    assert "full sentence" in remember.params_json_schema["properties"]["text"]["description"]
    assert list(recall.params_json_schema["properties"]) == ["question"]


async def test_a_session_is_gone_on_with_by_another_process(up: UpProcess) -> None:
    async with AsyncLoom(up.http_url, up.token) as loom:
        model = Scripted(calls("recall", question="which city?"), says("Lisbon — naïve guess, 東京 aside."))
        agent = agents.Agent(name="helper", model=model, tools=memory_tools(loom, user_id="agents-session"))
        await agents.Runner.run(agent, "Which city?", session=LoomSession("trip", loom))
    async with AsyncLoom(up.http_url, up.token) as loom:
        model.turns = [says("You asked for a city.")]
        session = LoomSession("trip", loom)
        plain = agents.Agent(name="helper", model=model)
        await agents.Runner.run(plain, "What did I ask?", session=session)
        kinds = [item.get("type") or item.get("role") for item in model.asked[-1]]
        assert kinds == ["user", "function_call", "function_call_output", "message", "user"]
        assert "東京" in json.dumps(model.asked[-1], ensure_ascii=False)
        assert len(await session.get_items()) == 6
        said = [(turn.role, turn.text) async for turn in loom.conversation.get_all("trip")]
        city = "Lisbon — naïve guess, 東京 aside."
        asked = ("user", "What did I ask?")
        assert said == [("user", "Which city?"), ("assistant", city), asked, ("assistant", "You asked for a city.")]
        # Where the items are gone, what was said is left.
        await loom.conversation.append([{"role": "user", "text": "hello"}], conversation_id="said")
        assert await LoomSession("said", loom).get_items() == [{"role": "user", "content": "hello"}]
        assert await LoomSession("another", loom).get_items() == []


async def test_a_session_keeps_items_as_the_packages_own_does(up: UpProcess) -> None:
    kinds: list[dict[str, Any]] = [{"role": "user"}, {"type": "function_call_output", "call_id": "c"}]
    items = [
        {**kinds[number > 3], ("output" if number > 3 else "content"): f"{number}: " + "long ü " * number}
        for number in range(200)
    ]
    own = agents.SQLiteSession("s")
    async with AsyncLoom(up.http_url, up.token) as loom:
        mine = LoomSession("kept", loom)
        for session in (own, mine):
            await session.clear_session()
            assert await session.pop_item() is None
            await session.add_items([])
            await session.add_items(items[:1])
            await session.add_items(items[1:])
        for limit in (None, 2, 0, 5_000):
            assert await mine.get_items(limit) == await own.get_items(limit), limit
        assert await mine.pop_item() == await own.pop_item() == items[-1]
        assert len(await mine.get_items()) == len(items) - 1
        limited = LoomSession("kept", loom, session_settings=agents.SessionSettings(limit=3))
        assert await limited.get_items() == items[-4:-1]
        await mine.clear_session()
        assert not (await loom.conversation.get("kept")).found
        assert await mine.get_items() == await LoomSession("kept", loom).get_items() == []
    own.close()
