"""The JSON in an answer is found whatever a model put around it or did to it, in time that the text's length bounds."""

import base64
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_common.json_text import MAX_CHARS, Finding, parse_object, without_fences


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


CORPUS = json.loads((Path(__file__).parent / "data" / "json_answers.json").read_text("utf-8"))


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case["name"])
def test_answers_as_models_write_them_are_read(case: dict[str, object]) -> None:
    parsed = parse_object(str(case["text"]))
    assert (parsed.finding.value, parsed.value) == (case["finding"], case["value"])
    assert parsed.whole is (case["finding"] in {"exact", "repaired"})


# NUL and halves of pairs are replaced, which has its own cases.
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
WRAPPINGS = [
    "{}",
    "\ufeff  {}\n",
    "```json\n{}\n```",
    "```\r\n{}\r\n```",
    "Here is the result:\n\n```json\n{}\n```\n\nIs there anything else?",
    "Sure. {} Done!",
    "<think>Let me see.</think>\n{}",
    "[{}]",
    "Some [notes] and 'quotes' \"here\": {}",
    "{} }} ]",
    "aGVsbG8gd29ybGQ= {} aGVsbG8gd29ybGQ=",
]


@settings(max_examples=60)
@given(
    value=st.dictionaries(TEXTS, VALUES, min_size=1, max_size=5),
    wrapping=st.sampled_from(WRAPPINGS),
    ascii_only=st.booleans(),
    indent=st.sampled_from([None, 2]),
)
def test_a_valid_object_survives_every_wrapping(
    value: dict[str, object], wrapping: str, ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    parsed = parse_object(wrapping.replace("{}", text, 1))
    assert (parsed.finding, parsed.value) == (Finding.EXACT, value)


@settings(max_examples=60)
@given(value=st.dictionaries(TEXTS, VALUES, min_size=1, max_size=5), indent=st.sampled_from([None, 2]))
def test_a_trailing_comma_loses_nothing(value: dict[str, object], indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    parsed = parse_object(f"{text[:-1]},}}")
    assert (parsed.finding, parsed.value) == (Finding.REPAIRED, value)


@settings(max_examples=60)
@given(value=st.dictionaries(TEXTS, VALUES, min_size=1, max_size=5), data=st.data())
def test_an_answer_that_is_cut_anywhere_is_told_and_keeps_whole_members(
    value: dict[str, object], data: st.DataObject
) -> None:
    text = json.dumps(value)
    parsed = parse_object(text[: data.draw(st.integers(1, len(text) - 1))])
    assert parsed.finding is Finding.TRUNCATED
    for key, kept in (parsed.value or {}).items():
        assert key in value
        if not isinstance(kept, list):
            assert kept == value[key]


@given(st.text(alphabet="{}[]\",:'\\/*\n\t `ab1u-.“”\ud800", max_size=200))
def test_no_text_makes_it_fail_and_what_it_finds_can_be_stored(text: str) -> None:
    parsed = parse_object(text)
    assert (parsed.value is None) or json.dumps(parsed.value, ensure_ascii=False, allow_nan=False).encode()
    assert not (parsed.whole and parsed.value is None)


HOSTILE = {
    "opening braces": "{" * 40_000,
    "opening objects": '{"a":' * 8_000,
    "opening brackets": '{"a":' + "[" * 40_000,
    "quotes": '{"a": "' + '" ' * 20_000,
    "quotes and commas": '{"a": "' + '",' * 20_000,
    "unclosed items": '{"a":[' * 20 + '"x' * 20_000,
    "half keys": '{"a" "b" ' * 4_500,
    "backslashes": '{"a": "' + "\\" * 40_000,
    "digits": '{"a": ' + "1" * 40_000 + "x",
    "comments": "{" + "/*" * 20_000,
    "spaces": '{"a"' + " " * 40_000 + "x",
    "words": "{a" * 20_000,
    "base64": '{"a": "' + base64.b64encode(bytes(range(256)) * 120).decode(),
    "fences": "```json\n" + '{"a": "' + "```\n" * 10_000,
}


def steps_of(work: Callable[[], object]) -> int:
    """Returns how many functions `work` calls, built in ones too."""
    steps = 0

    def count(frame: object, event: str, held: object) -> None:
        nonlocal steps
        steps += 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return steps


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_text_is_read_in_steps_that_its_length_bounds(text: str) -> None:
    # What is quadratic inside of one step takes minutes, and the limit of every test ends it.
    assert steps_of(lambda: parse_object(text)) < 12 * len(text)
    assert steps_of(lambda: without_fences(text)) < 100


def test_what_is_behind_the_bound_counts_as_cut_off() -> None:
    text = '{"a": 1, "b": "' + "x" * MAX_CHARS + '"}'
    assert parse_object(text).finding is Finding.TRUNCATED
    assert parse_object(text).value == {"a": 1}
