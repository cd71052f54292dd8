"""Every key comes back from its citation as it was."""

import random
import string

import pytest

from loom_common.citations import MemoryCitation, memory_citations, replaced_citations


@pytest.mark.parametrize(
    "key",
    ["plain", "with space", "a]b", "a[b]c", "x@v1", "x@v1]", "100%", "%5D", "line\nbreak", "ключ", "日本", "a\u2028b"],
)
def test_a_key_survives_its_citation(key: str) -> None:
    citation = MemoryCitation(key, 12)
    assert memory_citations(f"It is so {citation}, and {citation}.") == [citation, citation]


def test_random_keys_survive_their_citations() -> None:
    chance = random.Random(3)
    letters = string.printable + "@v1]%[日é"
    citations = [
        MemoryCitation("".join(chance.choices(letters, k=chance.randrange(1, 60))), chance.randrange(1, 999))
        for _ in range(300)
    ]
    assert memory_citations(" and ".join(map(str, citations))) == citations


def test_what_is_not_kept_is_removed_from_an_answer() -> None:
    good, bad = MemoryCitation("a", 1), MemoryCitation("b", 2)
    assert replaced_citations(f"Yes {good}{bad}.", frozenset([good])) == f"Yes {good}."
