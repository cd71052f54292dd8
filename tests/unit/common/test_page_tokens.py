import base64
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_common.errors import InvalidArgument
from loom_common.page_tokens import MAX_TOKEN_CHARS, decode_page_token, encode_page_token, query_digest

QUERY = {"org": "o", "namespace": "n", "tags": ["a", "b"], "order": "newest"}
PLACES = st.tuples(st.text(max_size=60), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False))


@given(PLACES)
def test_a_token_brings_its_place_back(place):
    token = encode_page_token(place, QUERY)
    assert decode_page_token(token, QUERY, (str, int, float)) == place


def test_no_token_is_the_first_page():
    assert decode_page_token("", QUERY, (str,)) is None


@pytest.mark.parametrize(
    "change", [{"org": "p"}, {"tags": ["b", "a"]}, {"tags": ["a"]}, {"order": "oldest"}, {"extra": None}]
)
def test_a_token_of_another_query_is_refused(change):
    token = encode_page_token(("k", 1), QUERY)
    with pytest.raises(InvalidArgument) as caught:
        decode_page_token(token, {**QUERY, **change}, (str, int))
    assert caught.value.fields[0].field == "page_token"


def test_the_order_of_a_querys_keys_does_not_count():
    assert query_digest(QUERY) == query_digest(dict(reversed(QUERY.items())))


def tampered(text):
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "é",
        "====",
        "a b",
        "A" * (MAX_TOKEN_CHARS + 1),
        tampered("{}"),
        tampered("[]"),
        tampered("[1]"),
        tampered("[true]"),
        tampered(f'[2,"{query_digest(QUERY)}","k",1]'),
        tampered(f'[true,"{query_digest(QUERY)}","k",1]'),
        tampered(f'[1,"{query_digest(QUERY)}","k"]'),
        tampered(f'[1,"{query_digest(QUERY)}",1,"k"]'),
        tampered(f'[1,"{query_digest(QUERY)}","k",true]'),
        tampered(f'[1,"{query_digest(QUERY)}","k",NaN]'),
        tampered(f'[1,"{query_digest(QUERY)}",["k"],1]'),
        tampered("[" * 3000),
    ],
)
def test_a_token_that_was_not_given_is_refused(token):
    with pytest.raises(InvalidArgument):
        decode_page_token(token, QUERY, (str, int))


@given(st.text(max_size=80))
def test_no_text_raises_anything_but_the_documented_error(token):
    with contextlib.suppress(InvalidArgument):
        decode_page_token(token, QUERY, (str, int))


def test_a_part_of_any_kind_may_be_none_and_a_whole_number_passes_for_a_score():
    token = encode_page_token((None, 1), QUERY)
    assert decode_page_token(token, QUERY, (object, float)) == (None, 1)


def test_a_key_too_long_for_a_token_is_the_callers_mistake():
    with pytest.raises(ValueError):
        encode_page_token(("x" * 5000,), QUERY)
