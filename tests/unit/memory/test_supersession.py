"""Of memories that contradict each other each holds for a time of its own, and none is lost."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from loom_common.call import Scope
from loom_memory.domain.memory import Content, Identity, Memory, Stated
from loom_memory.domain.supersession import Window, ended, ending, since, window_of

BEGIN = datetime(2020, 1, 1, tzinfo=UTC)
MOMENTS = st.integers(0, 12).map(lambda days: BEGIN + timedelta(days=days))


def memory(value: str, at: datetime, **more: object) -> Memory:
    return Memory(Scope("o", "n"), Identity(value), Content(value), "human:a", 1, 1, at, at, **more)  # type: ignore[arg-type]  # fields


@given(st.lists(st.tuples(MOMENTS, st.one_of(st.none(), MOMENTS)), max_size=8))
def test_windows_of_contradictions_never_overlap_whatever_the_order_of_writes(
    told: list[tuple[datetime, datetime | None]],
) -> None:
    held: list[Window] = []
    for begins, until in told:
        new = Window(begins, None if until is None else max(begins, until))
        ends = new.until
        for place, old in enumerate(held):
            end = ending(new, old)
            if end is None:
                continue
            if end.ends_new:
                ends = end.at if ends is None else min(ends, end.at)
            else:
                held[place] = Window(old.since, end.at)
        held.append(Window(new.since, ends))
    assert len(held) == len(told)
    for place, one in enumerate(held):
        assert one.until is None or one.until >= one.since
        for other in held[:place]:
            is_empty = one.until == one.since or other.until == other.since
            assert is_empty or not one.overlaps(other)


@given(st.lists(MOMENTS, min_size=1, max_size=8, unique=True))
def test_at_every_moment_the_newest_told_until_then_holds(moments: list[datetime]) -> None:
    held: dict[datetime, datetime | None] = {}
    for begins in moments:
        own: datetime | None = None
        for since_, until in list(held.items()):
            end = ending(Window(begins, own), Window(since_, until))
            if end is not None and end.ends_new:
                own = end.at
            elif end is not None:
                held[since_] = end.at
        held[begins] = own
    for moment in moments:
        holding = [since_ for since_, until in held.items() if since_ <= moment and (until is None or moment < until)]
        assert holding == [moment]


def test_a_memory_holds_since_it_happened_else_since_what_is_stated_else_since_it_was_written() -> None:
    happened, stated, written = (BEGIN + timedelta(days=day) for day in range(3))
    assert since(Content("x", event_time=happened), Stated(valid_at=stated), written) == happened
    assert since(Content("x"), Stated(valid_at=stated), written) == stated
    assert since(Content("x"), Stated(), written) == written


def test_an_end_keeps_the_beginning_whatever_is_written_later() -> None:
    row = memory("x", BEGIN)
    later = ended(row, BEGIN + timedelta(days=5))
    assert (later.valid_at, later.invalid_at) == (BEGIN, BEGIN + timedelta(days=5))
    rewritten = memory("x", BEGIN + timedelta(days=9), valid_at=later.valid_at, invalid_at=later.invalid_at)
    assert window_of(rewritten) == Window(BEGIN, BEGIN + timedelta(days=5))
