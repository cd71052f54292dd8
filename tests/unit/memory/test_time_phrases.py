from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_memory.domain.narrowing import Span
from loom_memory.domain.time_phrases import names_a_time, times_named, without_times

TODAY = date(2023, 6, 14)  # a Wednesday


def span(since: str, until: str) -> Span:
    ends = [datetime.fromisoformat(text).replace(tzinfo=UTC) if text else None for text in (since, until)]
    return Span(*ends)


@pytest.mark.parametrize(
    ("query", "since", "until"),
    [
        ("What did I do last week?", "2023-06-05", "2023-06-12"),
        ("what happened yesterday", "2023-06-13", "2023-06-14"),
        ("who came the day before yesterday", "2023-06-12", "2023-06-13"),
        ("whom did we meet in May 2023", "2023-05-01", "2023-06-01"),
        ("where did she go in March?", "2023-03-01", "2023-04-01"),
        ("what of 2022-05-03", "2022-05-03", "2022-05-04"),
        ("what was said on May 12th, 2023", "2023-05-12", "2023-05-13"),
        ("since March 2023 what changed", "2023-03-01", ""),
        ("what was there before 2021-03", "", "2021-03-01"),
        ("and after 2020-01-02", "2020-01-03", ""),
        ("between May 2022 and June 2023", "2022-05-01", "2023-07-01"),
        ("in the past 3 days", "2023-06-11", "2023-06-15"),
        ("two weeks ago", "2023-05-29", "2023-06-05"),
        ("last weekend", "2023-06-10", "2023-06-12"),
        ("what did we decide in 2022", "2022-01-01", "2023-01-01"),
        ("was war letzte Woche", "2023-06-05", "2023-06-12"),
        ("vor zwei Wochen", "2023-05-29", "2023-06-05"),
        ("il y a trois jours", "2023-06-11", "2023-06-12"),
        ("la semana pasada", "2023-06-05", "2023-06-12"),
        ("上周我做了什么", "2023-06-05", "2023-06-12"),
        ("先月の会議", "2023-05-01", "2023-06-01"),
        ("지난주 회의", "2023-06-05", "2023-06-12"),
        ("что было в прошлом месяце", "2023-05-01", "2023-06-01"),
    ],
)
def test_a_time_in_words_is_the_whole_stretch_that_it_names(query: str, since: str, until: str) -> None:
    assert names_a_time(query)
    assert [phrase.span for phrase in times_named(query, TODAY)] == [span(since, until)]


@pytest.mark.parametrize(
    "query",
    ["may we go", "the march of time", "version 2.3.4", "port 2023", "3 mois", "room 2022-a", "Wednesday Addams", ""],
)
def test_what_only_looks_like_a_time_names_none(query: str) -> None:
    assert times_named(query, TODAY) == ()


def test_the_words_of_a_time_can_be_left_out_of_the_question() -> None:
    query = "What happened last week in Lyon?"
    assert without_times(query, times_named(query, TODAY)) == "What happened in Lyon?"


@given(st.text(max_size=300))
def test_no_text_is_too_strange_to_be_read(query: str) -> None:
    for phrase in times_named(query, TODAY):
        assert 0 <= phrase.start < phrase.end <= len(query)
        assert phrase.span
