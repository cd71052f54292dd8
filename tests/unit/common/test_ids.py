from hypothesis import given
from hypothesis import strategies as st

from loom_common.clock import FakeClock
from loom_common.ids import SortableIds, encode, new_id


def test_identifiers_rise_with_time_and_within_one_millisecond() -> None:
    clock = FakeClock()
    ids = SortableIds(clock)
    drawn = [ids() for _ in range(100)]
    clock.advance(0.001)
    drawn.append(ids())
    clock.advance(-60)
    drawn.append(ids())
    assert drawn == sorted(set(drawn))


def test_identifiers_rise_when_the_random_part_is_used_up() -> None:
    ids = SortableIds(FakeClock(), random_bits=lambda bits: (1 << bits) - 1)
    first, second = ids(), ids()
    assert first < second


def test_an_identifier_is_26_characters_without_look_alikes() -> None:
    assert len(new_id()) == 26
    assert not set(new_id()) & set("ILOU")


@given(st.integers(0, 2**128 - 1), st.integers(0, 2**128 - 1))
def test_encoded_numbers_sort_as_the_numbers_do(left: int, right: int) -> None:
    assert (encode(left) < encode(right)) == (left < right)
