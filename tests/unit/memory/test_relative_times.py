"""Words that name a time, resolved against when they were said."""

from datetime import UTC, datetime

import pytest

from loom_memory.domain.relative_times import anchored, find_words, resolve_words

WEDNESDAY = datetime(2023, 5, 10, 12, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("words", "day"),
    [
        ("yesterday", "2023-05-09"),
        ("I saw him last Friday", "2023-05-05"),
        ("next Friday", "2023-05-12"),
        ("two weeks ago", "2023-04-26"),
        ("a couple of days ago", "2023-05-08"),
        ("in three days", "2023-05-13"),
        ("last week", "2023-05-01"),
        ("last month", "2023-04-01"),
        ("next year", "2024-01-01"),
        ("in May 2021", "2021-05-01"),
        ("May 7, 2022", "2022-05-07"),
        ("on the 7th of May", "2023-05-07"),
        ("December 24", "2022-12-24"),
        ("in March", "2023-03-01"),
        ("in 2019", "2019-01-01"),
        ("since 2020-02-29", "2020-02-29"),
        ("the day before yesterday", "2023-05-08"),
    ],
)
def test_words_are_resolved_against_when_they_were_said(words: str, day: str) -> None:
    found = resolve_words(words, WEDNESDAY)
    assert found is not None
    assert found.date().isoformat() == day


@pytest.mark.parametrize("words", ["", "soon", "when I may", "2023-13-45", "February 30, 2023", "a march in the rain"])
def test_words_that_name_no_time_have_none(words: str) -> None:
    assert find_words(words, WEDNESDAY) is None


def test_a_month_is_as_long_as_it_is() -> None:
    assert resolve_words("a month ago", datetime(2023, 3, 31, tzinfo=UTC)) == datetime(2023, 2, 28, tzinfo=UTC)
    assert resolve_words("one year ago", datetime(2024, 2, 29, tzinfo=UTC)) == datetime(2023, 2, 28, tzinfo=UTC)


def test_words_that_only_mean_a_day_while_it_is_known_get_that_day_beside_them() -> None:
    assert anchored("Ann left yesterday.", WEDNESDAY) == "Ann left yesterday (2023-05-09)."
    assert anchored("Ann left on May 9, 2023.", WEDNESDAY) == "Ann left on May 9, 2023."
    assert anchored(anchored("Ann left yesterday.", WEDNESDAY), WEDNESDAY) == "Ann left yesterday (2023-05-09)."
