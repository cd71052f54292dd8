import contextlib
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_common.errors import InvalidArgument
from loom_common.times import format_optional_time, format_time, parse_optional_time, parse_time

MOMENTS = st.datetimes(datetime(1900, 1, 2), datetime(2299, 12, 30))  # noqa: DTZ001 - hypothesis wants them naive
OFFSETS = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-30T13:05:00Z", "2026-11-30T13:05:00.000Z"),
        ("2026-11-30t13:05:00z", "2026-11-30T13:05:00.000Z"),
        ("2026-11-30 13:05:00.123456789+02:00", "2026-11-30T11:05:00.123Z"),
        ("2026-11-30T13:05:00,5", "2026-11-30T13:05:00.500Z"),
        ("2026-11-30T13:05", "2026-11-30T13:05:00.000Z"),
        ("2026-11-30T13:05:00-0530", "2026-11-30T18:35:00.000Z"),
        ("  2026-11-30 ", "2026-11-30T00:00:00.000Z"),
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00.000Z"),
        ("2024-02-29", "2024-02-29T00:00:00.000Z"),
    ],
)
def test_a_time_is_read_in_every_documented_form(text, expected):
    assert format_time(parse_time(text, "since")) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2026",
        "2026-13-01",
        "2026-02-29",
        "2026-11-30T24:00",
        "2026-11-30T13",
        "2026-11-30T13:05:00+24:00",
        "2026-11-30T13:05:00+02:60",
        "1899-12-31",
        "2300-01-01",
        "0001-01-01T00:00:00+23:00",
        "9999-12-31T23:59:59-23:00",
        "1900-01-01T00:00:00+01:00",
        "２０２６-11-30",
        "2026-11-30Z",
        "1764507900",
        "2026-11-30T13:05:00Z; DROP",
    ],
)
def test_what_is_no_time_is_refused_with_the_fields_name(text):
    with pytest.raises(InvalidArgument) as caught:
        parse_time(text, "since")
    assert caught.value.fields[0].field == "since"


@given(MOMENTS, OFFSETS)
def test_every_moment_survives_writing_and_reading_to_the_millisecond(naive, offset):
    moment = naive.replace(tzinfo=offset)
    shown = format_time(moment)
    assert parse_time(shown, "t") == moment.astimezone(UTC).replace(microsecond=moment.microsecond // 1000 * 1000)
    assert parse_time(moment.isoformat(), "t") == moment


@given(st.text(max_size=40))
def test_no_text_raises_anything_but_the_documented_error(text):
    with contextlib.suppress(InvalidArgument):
        assert parse_time(text, "t").tzinfo is UTC


def test_absent_times_are_empty_text():
    assert parse_optional_time(" ", "t") is None
    assert parse_optional_time("2026-01-01", "t") == datetime(2026, 1, 1, tzinfo=UTC)
    assert format_optional_time(None) == ""


def test_a_time_without_offset_is_not_written():
    with pytest.raises(ValueError):
        format_time(datetime(2026, 1, 1))  # noqa: DTZ001 - what is tested
