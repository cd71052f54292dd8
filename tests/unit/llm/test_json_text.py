"""What models put around JSON comes off, and nothing inside does."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_llm.domain.json_text import without_fences
from loom_llm.providers.fake import FakeClient


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ('{"a": 1}', '{"a": 1}'),
        ('```json\n{"a": 1}\n```', '{"a": 1}'),
        ('```\n{"a": 1}\n```', '{"a": 1}'),
        ('  ```JSON\r\n{"a": 1}\r\n```  \n', '{"a": 1}'),
        ('```json\n{"a": "```\\n```"}\n```', '{"a": "```\\n```"}'),
        ("```json\n{}```", "{}"),
        ("prose ```json\n{}\n```", "prose ```json\n{}\n```"),
        ("", ""),
        ("```", "```"),
    ],
)
def test_a_fence_around_the_whole_comes_off(text: str, inside: str) -> None:
    assert without_fences(text) == inside


JSON_OBJECTS = st.dictionaries(st.text(), st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5))


@given(value=JSON_OBJECTS, ascii_only=st.booleans(), indent=st.sampled_from([None, 2]))
def test_any_object_survives_a_fence(value: dict[str, object], ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert json.loads(without_fences(f"```json\n{text}\n```")) == value
    assert without_fences(text) == text


@given(prompt=st.text(), cap=st.integers(1, 50))
async def test_the_fake_answers_json_that_parses(prompt: str, cap: int) -> None:
    result = await FakeClient("fake-echo-1").complete("", prompt, cap, {"type": "json_object"})
    assert json.loads(result.text)["fake"] is True
