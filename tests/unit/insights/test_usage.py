"""Which spans a summary of usage may read."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_common.errors import InvalidArgument
from loom_insights.domain.usage import DEFAULT_SPAN, MAX_SPAN, Span

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def test_a_summary_without_bounds_reads_the_last_thirty_days() -> None:
    assert Span.of(None, None, NOW) == Span(NOW - DEFAULT_SPAN, NOW)


def test_a_summary_with_an_end_alone_reads_the_thirty_days_before_it() -> None:
    end = NOW - timedelta(days=100)
    assert Span.of(None, end, NOW) == Span(end - DEFAULT_SPAN, end)


@pytest.mark.parametrize("since", [NOW, NOW + timedelta(seconds=1), NOW - MAX_SPAN - timedelta(seconds=1)])
def test_a_span_that_is_empty_backwards_or_over_a_year_is_refused_by_field(since: datetime) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Span.of(since, NOW, NOW)
    assert [violation.field for violation in caught.value.fields] == ["since"]


@given(st.integers(1, MAX_SPAN.days * 86_400))
def test_every_span_up_to_a_year_is_taken_as_it_is(seconds: int) -> None:
    since = NOW - timedelta(seconds=seconds)
    assert Span.of(since, NOW, NOW) == Span(since, NOW)
