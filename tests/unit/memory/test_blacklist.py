"""Words and patterns that may not be written."""

import pytest

from loom_common.safe_patterns import PatternRefused
from loom_memory.domain.blacklist import Blacklist


@pytest.mark.parametrize(
    ("word", "text", "is_found"),
    [
        ("falcon", "the FALCON flies", True),
        ("falcon", "falconry", False),
        ("falcon", "ﬀalcon ｆａｌｃｏｎ", True),
        ("project falcon", "Project\n  Falcon", True),
        ("falcon", "fal\u200bcon", True),
        ("c++", "we use C++ here", True),
        ("c++", "we use C", False),
        ("straße", "STRASSE", True),
        ("机密", "这是机密文件", True),
        ("a.b", "axb", False),
        ("", "anything", False),
    ],
)
def test_words_are_found_whole_in_any_dress(word: str, text: str, is_found: bool) -> None:
    assert Blacklist([word], []).holds([text]) is is_found


def test_patterns_are_found_as_written_and_cannot_take_long() -> None:
    blacklist = Blacklist([], [r"\bZX-\d{4}\b", "(a+)+$"])
    assert blacklist.holds(["part ZX-4417"])
    assert not blacklist.holds(["part zx-4417", "a" * 60_000 + "b"])


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(PatternRefused):
        Blacklist([], ["(?<=x)y"])
