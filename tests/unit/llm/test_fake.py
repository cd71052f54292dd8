"""The fake is useful for a demonstration, the same each time, and says what it is."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_llm.providers.fake import FakeClient

EVIDENCE = """Answer from the notes.
[memory:a@v1] The kick-off meeting is on Friday at ten.
- Maria prefers tea. The budget was approved by Zoë in March.
Question: Who approved the budget?"""


async def said(system: str, user: str, *, json_object: bool = False, cap: int = 100) -> str:
    client = FakeClient("fake-echo-1")
    results = [
        await client.complete(system, user, cap, {"type": "json_object"} if json_object else None) for _ in range(2)
    ]
    assert results[0] == results[1]
    assert results[0].model.startswith("fake")
    return results[0].text


async def test_a_question_is_answered_with_the_evidence_that_fits_it() -> None:
    assert await said("", EVIDENCE) == "[fake-echo] “The budget was approved by Zoë in March.”"


@pytest.mark.parametrize("user", ["hi", "Is there a question alone?", "No question.\nNone at all."])
async def test_a_prompt_without_evidence_is_echoed(user: str) -> None:
    assert await said("", user) == f"[fake-echo] {' '.join(user.split())}"


async def test_the_mark_survives_any_cap() -> None:
    assert await said("", EVIDENCE, cap=1) == "[fake-echo]"


async def test_json_has_the_form_of_an_example_in_the_instructions() -> None:
    system = (
        'Extract facts. Answer like {"facts": [{"text": "...", "kind": "preference|event", "sure": true, "n": 1}], '
        '"summary": "..."}'
    )
    found = json.loads(await said(system, "Maria prefers tea.\nThe meeting is on Friday.", json_object=True))
    item = {"kind": "preference", "sure": False, "n": 0}
    assert found == {
        "fake": True,
        "facts": [{"text": "Maria prefers tea.", **item}, {"text": "The meeting is on Friday.", **item}],
        "summary": "Maria prefers tea.",
    }


async def test_json_has_the_form_of_a_schema_in_the_instructions() -> None:
    schema = {
        "type": "object",
        "properties": {
            "verdict": {"enum": ["same", "other"]},
            "score": {"type": "number", "minimum": 1},
            "reasons": {"type": "array", "items": {"type": "string"}},
            "note": {"type": ["string", "null"]},
            "done": {"type": "boolean"},
            "more": {"type": "object", "properties": {"version": {"const": 2}}},
        },
    }
    found = json.loads(await said(f"Judge by this schema: {json.dumps(schema)}", "A cat. A dog.", json_object=True))
    assert found == {
        "fake": True,
        "verdict": "same",
        "score": 1,
        "reasons": ["A cat.", "A dog."],
        "note": "A cat.",
        "done": False,
        "more": {"version": 2},
    }


async def test_json_without_a_form_holds_the_echo_and_says_that_it_is_fake() -> None:
    assert json.loads(await said("Be brief.", "hi", json_object=True)) == {"fake": True, "echo": "[fake-echo] hi"}


@pytest.mark.parametrize(
    "user",
    ["".join(f"{number}?\n" for number in range(400_000)), "word" * 1_000_000, "? " * 2_000_000],
    ids=["questions", "word", "marks"],
)
async def test_a_prompt_of_four_megabytes_is_answered_with_short_quotes(user: str) -> None:
    text = await said('Answer like {"a": "...", "b": ["..."]}', user, json_object=True)
    assert len(text) < 4000


async def test_calls_are_answered_while_a_hostile_prompt_is_read() -> None:
    client = FakeClient("fake-echo-1")
    hostile = asyncio.create_task(client.complete('{"a":[' * 20 + '"x' * 100_000, "hi", 9, {"type": "json_object"}))
    await asyncio.sleep(0)
    assert (await client.complete("", "hi")).text == "[fake-echo] hi"
    assert not hostile.done()
    assert json.loads((await hostile).text)["fake"] is True


@given(prompt=st.text(), cap=st.integers(1, 50))
async def test_the_fake_answers_json_that_parses(prompt: str, cap: int) -> None:
    result = await FakeClient("fake-echo-1").complete("", prompt, cap, {"type": "json_object"})
    assert json.loads(result.text)["fake"] is True
