from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_memory.domain.query_cues import DateCue, read_cues, topic_of

SPEAKERS = ["Caroline", "Will", "Ann Lee", "小明", "May", "user"]


@pytest.mark.parametrize(
    ("query", "named", "text"),
    [
        ("What did Caroline's dog eat?", {"Caroline"}, "What did dog eat?"),
        ("what did caroline eat", {"Caroline"}, "what did eat"),
        ("When did Will go climbing?", {"Will"}, "When did go climbing?"),
        ("Will it rain?", set(), "Will it rain?"),
        ("what will it cost", set(), "what will it cost"),
        ("Ann Lee likes tea", {"Ann Lee"}, "likes tea"),
        ("does Ann like tea", {"Ann Lee"}, "does like tea"),
        ("mail ann@example.com", set(), "mail ann@example.com"),
        ("Ann-Marie likes tea", set(), "Ann-Marie likes tea"),
        ("小明喜欢什么咖啡", {"小明"}, "喜欢什么咖啡"),
        ("trip in May 2023", set(), "trip in May 2023"),
        ("Who is Caroline?", {"Caroline"}, "Who is Caroline?"),
        ("", set(), ""),
    ],
)
def test_known_names_are_read_and_taken_out_of_the_text(query: str, named: set[str], text: str) -> None:
    cues = read_cues(query, SPEAKERS)
    assert cues.speakers == frozenset(named)
    assert cues.text == text


def test_an_empty_speaker_name_is_ignored() -> None:
    assert read_cues("coffee every morning", ["", " "]).text == "coffee every morning"


@pytest.mark.parametrize(
    ("query", "dates"),
    [
        ("on 8 May, 2023", (DateCue(2023, 5, 8),)),
        ("on May 8th 2023", (DateCue(2023, 5, 8),)),
        ("the 3rd of June", (DateCue(None, 6, 3),)),
        ("in May", (DateCue(None, 5),)),
        ("what may happen", ()),
        ("a march for peace", ()),
        ("december plans", (DateCue(None, 12),)),
        ("Sept 5", (DateCue(None, 9, 5),)),
        ("2023-05-08 and 2023-05-08", (DateCue(2023, 5, 8),)),
        ("2023年5月8日の会議", (DateCue(2023, 5, 8),)),
        ("since 2022", (DateCue(2022),)),
        ("2000 dollars on port 2049 with v2023.1.4", ()),
        ("id 550e8400-2023-05", ()),
        ("2023-13-45", ()),
    ],
)
def test_dates_are_read_conservatively(query: str, dates: tuple[DateCue, ...]) -> None:
    assert read_cues(query).dates == dates


@pytest.mark.parametrize(
    ("cue", "when", "fits"),
    [
        (DateCue(2023, 5, 8), date(2023, 5, 8), True),
        (DateCue(2023, 5, 8), date(2023, 5, 7), True),
        (DateCue(2023, 5, 31), date(2023, 6, 2), True),
        (DateCue(None, 12, 30), date(2024, 1, 2), True),
        (DateCue(None, 1, 1), date(2023, 12, 31), True),
        (DateCue(2023, 5, 8), date(2023, 5, 16), False),
        (DateCue(2023, 2, 30), date(2023, 3, 1), False),
        (DateCue(None, 5), date(1999, 5, 31), True),
        (DateCue(2022), date(2023, 1, 1), False),
    ],
)
def test_a_date_fits_what_is_told_around_it(cue: DateCue, when: date, fits: bool) -> None:
    assert cue.fits(when) is fits


@pytest.mark.parametrize(
    ("query", "asks"),
    [
        ("When did she move?", True),
        ("How long did it take?", True),
        ("Which year was it?", True),
        ("你什么时候去的", True),
        ("What did she say?", False),
    ],
)
def test_a_question_for_a_time_is_recognised(query: str, asks: bool) -> None:
    assert read_cues(query).asks_when is asks


@given(st.text(max_size=200), st.lists(st.text(max_size=12), max_size=5))
def test_any_query_and_names_are_read_without_an_error(query: str, speakers: list[str]) -> None:
    cues = read_cues(query, speakers)
    assert cues.speakers <= set(speakers)
    assert bool(cues.text) or not query.strip()


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("What kind of car did Ines buy?", "What kind of car did buy?"),
        ("Where did Ana's cat and Ben go in May?", "Where did cat and go in May?"),
        ("Quand Camille a-t-elle rendez-vous ?", "Quand a-t-elle rendez-vous ?"),
        # Nothing is asked beside the name.
        ("What about Ines?", ""),
        ("What is Ines allergic to?", ""),
        # The first word of a sentence says nothing by its capital.
        ("Redis is slow. Why is that?", ""),
        # Abbreviations and names of mixed case are things that are asked about.
        ("Does the API of PostgreSQL allow it?", ""),
        # German writes every noun so.
        ("Wann endet die Probezeit von Jonas?", ""),
        ("when does ines come?", ""),
        ("田中さんは何が好きですか", ""),
    ],
)
def test_the_topic_is_what_is_asked_of_whom_a_question_names(text: str, topic: str) -> None:
    assert topic_of(text) == topic


@given(st.text(max_size=200))
def test_any_text_has_a_topic_or_none(text: str) -> None:
    assert len(topic_of(text)) <= len(text)
