import subprocess
import sys
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_memory.domain.analyzer import (
    MAX_QUERY_TERMS,
    MAX_TERMS,
    AnalyzedQuery,
    analyze_query,
    analyze_text,
    term_id,
)

_WORD = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_IDENTIFIERS = st.builds(
    lambda first, rest: first + "".join(connector + part for connector, part in rest),
    st.text(_WORD, min_size=1, max_size=12),
    st.lists(st.tuples(st.sampled_from("-._/\\:@"), st.text(_WORD, min_size=1, max_size=12)), max_size=6),
)
_CJK = st.text("咖啡配置東京タワーにひらがな커피를喜歡的", min_size=1, max_size=8)


def _found(query: AnalyzedQuery, text: str) -> set[int]:
    return set(query.term_ids) & set(analyze_text(text).term_ids)


@given(_IDENTIFIERS, st.text("abc XY.,;()!?", max_size=30), st.text("abc XY.,;()!?", max_size=30))
def test_an_identifier_inside_a_text_is_found_whole(identifier: str, before: str, after: str) -> None:
    query = analyze_query(identifier)
    assert query.terms
    assert set(query.term_ids) <= set(analyze_text(f"{before} {identifier} {after}").term_ids)


@given(_CJK, _CJK, _CJK)
def test_a_word_of_a_script_without_spaces_is_found_inside_a_sentence(word: str, before: str, after: str) -> None:
    assert set(analyze_query(word).term_ids) <= set(analyze_text(before + word + after).term_ids)


@given(st.text(max_size=300))
def test_any_text_is_analysed_alike_every_time_within_bounds(text: str) -> None:
    first = analyze_text(text)
    assert first == analyze_text(text)
    assert all(0 <= identifier < 2**32 for identifier in first.term_ids)
    assert 0 <= first.dl <= len(first.term_ids) <= MAX_TERMS
    query = analyze_query(text)
    assert query == analyze_query(text)
    assert len(set(query.term_ids)) <= len(query.terms) <= MAX_QUERY_TERMS
    assert set(query.term_ids) <= set(first.term_ids)


@given(st.text(st.characters(codec=None), max_size=100))
def test_lone_surrogates_and_control_characters_do_not_stop_the_analysis(text: str) -> None:
    analyze_text(text + "\ud800\x00")
    analyze_query(text + "\udfff")


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("咖啡", "我每天早上都喝咖啡。"),
        ("茶", "我喜欢喝茶"),
        ("配置", "配置 GOALS.md 9router"),
        ("GOALS.md", "配置 GOALS.md 9router"),
        ("goals", "配置GOALS.md9router"),
        ("9router", "配置 GOALS.md 9router"),
        ("東京", "東京タワーに行きました"),
        ("タワー", "東京タワーに行きました"),
        ("커피", "커피를 마셨다"),
        ("ZX-4417-Q", "the code is ZX-4417-Q."),
        ("zx-4417-q", "the code is ZX-4417-Q,"),
        ("4417", "the code is ZX-4417-Q"),
        ("main.py", r"open C:\src\main.py now"),
        (r"C:\src\main.py", r"open C:\src\main.py now"),
        ("foo_bar", "call foo_bar()"),
        ("foobar", "call foo_bar()"),
        ("camel", "the camelCase name"),
        ("camelcase", "the camelCase name"),
        ("joe.bloggs@example.com", "write to Joe.Bloggs@example.com, please"),
        ("example.com", "see https://example.com/docs?x=1"),
        ("550e8400-e29b-41d4-a716-446655440000", "id=550E8400-E29B-41D4-A716-446655440000"),
        ("3.14", "upgrade to 3.14 today"),
        ("invoices", "Invoices 2024"),
        ("invoice", "Invoices 2024"),
        ("cafe", "the Café at the corner"),
        ("café", "the CAFE\u0301 at the corner"),
        ("STRASSE", "die Straße"),
        ("email", "an e-mail came"),
        ("Caroline", "Caroline’s dog"),
        ("C++", "written in C++, mostly"),
        ("ｆｕｌｌ", "full width"),
        ("भाषा", "हिन्दी भाषा"),
    ],
)
def test_a_query_finds_the_text_that_holds_it(query: str, text: str) -> None:
    assert _found(analyze_query(query), text)


@pytest.mark.parametrize(
    ("query", "text"), [("咖啡", "啡咖"), ("C++", "vitamin D"), ("3.14", "2.71"), ("東京", "京都の東"), ("й", "и")]
)
def test_a_query_does_not_find_a_text_without_it(query: str, text: str) -> None:
    assert not _found(analyze_query(query), text)


def test_a_whole_identifier_weighs_more_than_a_word_and_a_word_more_than_a_part() -> None:
    by_term = {term.term: term for term in analyze_query("status ZX-4417-Q").terms}
    assert by_term["zx-4417-q"].weight > by_term["status"].weight > by_term["4417"].weight
    assert [term.term for term in by_term.values() if term.is_identifier] == ["zx-4417-q"]


@pytest.mark.parametrize("text", ["well-known", "and/or", "20th 5k", "Caroline's", "हिन्दी", "don't"])
def test_everyday_words_with_punctuation_are_no_identifiers(text: str) -> None:
    assert not any(analyze_query(text).identifiers)


def test_stop_words_are_asked_for_only_when_nothing_else_is() -> None:
    assert [term.term for term in analyze_query("what is the coffee").terms] == ["coffe"]
    only = analyze_query("to be or not to be")
    assert _found(only, "To be, or not to be: that is the question.") == set(only.term_ids) != set()


def test_a_text_without_letters_or_digits_has_no_terms() -> None:
    assert analyze_text(" ... !? ") == ([], 0)
    assert analyze_query(" ... !? ").terms == ()


def test_the_length_counts_words_and_neither_stop_words_nor_parts() -> None:
    assert analyze_text("the coffee of foo_bar").dl == 2


def test_term_ids_are_the_same_in_another_process() -> None:
    # The golden value binds rows stored by an earlier version.
    code = "from loom_memory.domain.analyzer import term_id; print(term_id('coffe'))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert term_id("coffe") == int(other.stdout) == GOLDEN_COFFEE


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "a-",
        "aB1.",
        "a'",
        "a ",
        "/",
        "_",
        "咖啡",
        "\ufdfa",
        "\u0315\u0300",
        "a%%%%",
        "aGVsbG8gd29ybGQhIQ9",
        "\ud800",
    ],
)
def test_a_megabyte_of_anything_is_analysed_in_bounded_time(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    began = perf_counter()
    assert len(analyze_text(text).term_ids) <= MAX_TERMS
    assert len(analyze_query(text).terms) <= MAX_QUERY_TERMS
    # Linear work takes less than a second on an idle machine; quadratic work would take hours.
    assert perf_counter() - began < 60


GOLDEN_COFFEE = 1904899447
