"""Repetitions and contradictions by their words alone."""

import time
from pathlib import Path

import pytest

from loom_memory.domain.likeness import MAX_CHARS, Likeness, compare

PAIRS = [
    line.split("\t")
    for line in (Path(__file__).parents[3] / "bench/data/verdicts.tsv").read_text("utf-8").splitlines()[1:]
]


def test_no_near_miss_of_the_labelled_pairs_is_a_repetition() -> None:
    wrong = [
        (one, other)
        for _, label, _, _, one, other in PAIRS
        if label != "duplicate" and compare(other, one) is Likeness.DUPLICATE
    ]
    assert len(PAIRS) >= 120
    assert wrong == []


def test_most_labelled_repetitions_and_contradictions_are_seen_in_either_order() -> None:
    for label in (Likeness.DUPLICATE, Likeness.CONFLICT):
        some = [(one, other) for _, wanted, _, _, one, other in PAIRS if wanted == label]
        for earlier, later in ((0, 1), (1, 0)):
            found = sum(compare(pair[later], pair[earlier]) is label for pair in some)
            assert found >= 0.8 * len(some), (label, found, len(some))


@pytest.mark.parametrize(
    ("later", "earlier"),
    [
        ("x costs 5", "y costs 7"),
        ("running note 4", "running note 3"),
        ("red brick 7", "red brick 9"),
        ("Ben manages Ana", "Ana manages Ben"),
        ("It uses C++", "It uses C"),
        ("The limit is -5 degrees", "The limit is 5 degrees today"),
        ("Ana was the CTO", "Ana is the CTO"),
        ("Ana moved to Berlin", "Ana moved from Berlin"),
        ("Is Ana the CTO?", "Ana is the CTO."),
        ("He prefers tea", "She prefers tea"),
        ("", "anything"),
        ("!!!", "???"),
        ("the", "a"),
        ("a" * (MAX_CHARS + 1), "a" * (MAX_CHARS + 1)),
    ],
)
def test_what_is_not_plainly_the_same_is_no_repetition(later: str, earlier: str) -> None:
    assert compare(later, earlier) is not Likeness.DUPLICATE


def test_long_hostile_texts_are_compared_in_bounded_time() -> None:
    began = time.perf_counter()
    for later, earlier in (("a b " * 250, "b a " * 250), ("1" * 1000, "2" * 1000), ("不" * 1000, "没" * 1000)):
        compare(later, earlier)
    assert time.perf_counter() - began < 5
