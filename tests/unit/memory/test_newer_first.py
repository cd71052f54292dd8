"""Of two hits that contradict each other the newer one comes first."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from loom_common.call import Scope
from loom_memory.domain.memory import Content, Hit, Identity, Memory
from loom_memory.domain.newer_first import newer_first

START = datetime(2026, 1, 1, tzinfo=UTC)


def hit(key: str, value: str, day: int, *, kind: str = "fact", user: str = "u", low: bool = False) -> Hit:
    at = START + timedelta(days=day)
    memory = Memory(Scope("acme", "n"), Identity(key, user), Content(value, kind=kind), "human:a", 1, day, at, at)
    return Hit(memory, 0.5, 0.5, low)


def order(*hits: Hit) -> list[str]:
    return [each.memory.identity.key for each in newer_first(hits)]


def test_the_present_employer_comes_before_the_old_one() -> None:
    old, new = hit("old", "Anna works at Acme", 1), hit("new", "Anna works at Globex", 2)
    assert order(old, new) == ["new", "old"]
    assert order(new, old) == ["new", "old"]


def test_what_lies_between_keeps_its_order() -> None:
    other = hit("other", "Anna lives in Lyon", 5)
    assert order(hit("old", "Anna works at Acme", 1), other, hit("new", "Anna works at Globex", 2)) == [
        "new",
        "old",
        "other",
    ]


def test_other_users_turns_of_a_conversation_and_low_hits_pass_nothing() -> None:
    old = hit("old", "Anna works at Acme", 1)
    assert order(old, hit("new", "Anna works at Globex", 2, user="v")) == ["old", "new"]
    assert order(old, hit("new", "Anna works at Globex", 2, kind="chunk")) == ["old", "new"]
    assert order(old, hit("new", "Anna works at Globex", 2, low=True)) == ["old", "new"]


@given(
    st.lists(
        st.tuples(st.sampled_from(["Anna works at Acme", "Anna works at Globex", "Ben likes tea"]), st.integers(0, 9)),
        max_size=12,
    )
)
def test_nothing_is_lost_or_added(rows: list[tuple[str, int]]) -> None:
    hits = [hit(str(number), value, day) for number, (value, day) in enumerate(rows)]
    assert sorted(order(*hits)) == sorted(each.memory.identity.key for each in hits)
