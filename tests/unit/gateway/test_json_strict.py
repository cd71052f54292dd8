"""What the gateway takes for JSON, and what it does not."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_common.errors import MalformedRequest
from loom_gateway.contract.answers import encode
from loom_gateway.contract.strict_json import half_surrogates, nesting, parse_json, parse_json_object, shown

_SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
_TEXT = st.text(max_size=20)
_VALUES = st.recursive(
    _SCALARS | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(_TEXT, _VALUES, max_size=4))
def test_every_object_that_json_can_write_is_read_as_it_was(value: dict[str, object]) -> None:
    assert parse_json_object(json.dumps(value).encode()) == value
    assert parse_json_object(json.dumps(value, ensure_ascii=False, indent=1).encode()) == value


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_with_a_reason(body: bytes) -> None:
    told = ""
    try:
        parse_json_object(body)
    except MalformedRequest as error:
        told = error.message
    encode(told)


@given(st.text(alphabet='{}[]",:\\ua0d8e1 \t\n"', max_size=60))
def test_text_made_of_json_signs_is_read_as_the_standard_parser_reads_it_or_refused(text: str) -> None:
    try:
        ours = parse_json(text.encode())
    except MalformedRequest:
        return
    assert ours == json.loads(text)


@given(st.recursive(st.just([]), lambda inner: st.lists(inner, min_size=1, max_size=2), max_leaves=30), _TEXT)
def test_nesting_is_that_of_the_brackets_outside_of_strings(value: list[object], text: str) -> None:
    def depth(item: object) -> int:
        return 1 + max((depth(inner) for inner in item), default=0) if isinstance(item, list) else 0

    assert nesting(json.dumps([text + '"[{' + "\\", value]).encode()) == 1 + depth(value)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"nonsense",
        b'{"a": 1,}',
        b"{'a': 1}",
        b'{"a": 1} {"b": 2}',
        b'{"a": 1, "a": 2}',
        b'{"a": {"b": 1, "b": 1}}',
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": -Infinity}',
        b'{"a": 1e999}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b"\xef\xbb\xbf{}",
        b'{"a": "\xff"}',
        b'{"a": "\xed\xa0\x80"}',
        '{"a": 1}'.encode("utf-16"),
        b'{"a": "\x00"}',
        b'{"a": "line\nend"}',
        b"[1]",
        b'"text"',
        b"null",
        b"{}\x00",
        b"[" * 10_000,
        b"[" * 10_000 + b"]" * 10_000,
        b'{"a":' * 10_000,
        b'{"a":' * 65 + b"1" + b"}" * 65,
        b'"' * 9_999 + b"[",
    ],
    ids=lambda body: repr(body[:24]),
)
def test_what_is_no_strict_json_object_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        parse_json_object(body)


def test_an_object_as_deep_as_allowed_is_read() -> None:
    body = b'{"a":' * 64 + b"1" + b"}" * 64
    assert nesting(body) == 64
    parse_json_object(body)


def test_an_empty_body_is_an_empty_object() -> None:
    assert parse_json_object(b"") == {}


def test_a_text_full_of_quotes_and_backslashes_is_measured_in_linear_time() -> None:
    assert nesting(b'"\\' * 1_000_000) == 0


def test_half_surrogates_are_named_by_their_fields() -> None:
    value = parse_json(b'{"a": "\\ud800", "b": [{"c": "x\\udfff"}], "good": "\\ud83d\\ude00", "\\udc00": 1}')
    assert [found.field for found in half_surrogates(value)] == ["a", "b[0].c", "\\udc00"]


@given(st.text(alphabet=st.characters(), max_size=100))
def test_a_callers_text_in_an_error_is_always_short_and_can_be_sent(text: str) -> None:
    assert len(shown(text).encode("utf-8")) <= 64 * 10 + 3
