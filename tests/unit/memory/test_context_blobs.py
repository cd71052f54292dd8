"""Parts of parked texts."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_common.safe_patterns import SafePattern
from loom_memory.context.domain.blobs import (
    Part,
    PatternTooSlow,
    digest_of,
    key_of,
    line_count,
    matching,
    pointer,
    sliced,
    summary_of,
)

LOG = "start\nwarning: one\nfine\nfine\nfine\nERROR: two\nend\n"


def found(pattern: str, around: int = 0, offset: int = 0, limit: int = 4000, text: str = LOG) -> Part:
    return matching(text, SafePattern(pattern, ignore_case=True), around, offset, limit)


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=300), st.integers(1, 40))
def test_slices_make_the_whole(content: str, limit: int) -> None:
    offset, whole = 0, ""
    while True:
        part = sliced(content, offset, limit)
        whole += part.text
        if not part.next_offset:
            break
        offset = part.next_offset
    assert whole == content
    assert sliced(content, len(content) + 5, limit) == Part("", 0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(["hit", "miss", ""]), max_size=30), st.integers(0, 3), st.integers(5, 60))
def test_matching_lines_come_each_once_over_all_pages(lines: list[str], around: int, limit: int) -> None:
    content = "\n".join(lines)
    numbers, offset = [], 0
    while True:
        part = found("hit", around, offset, limit, content)
        assert len(part.text) <= limit
        numbers += [int(line.split(":")[0]) for line in part.text.split("\n") if ": hit" in line]
        if not part.next_offset:
            break
        assert part.next_offset > offset
        offset = part.next_offset
    assert part.matches == lines.count("hit")
    assert sorted(set(numbers)) == numbers
    if limit >= 60:
        assert numbers == [number for number, line in enumerate(lines, 1) if line == "hit"]


def test_lines_around_a_match_are_shown_apart() -> None:
    assert found("warning|error").text == "2: warning: one\n6: ERROR: two"
    assert found("warning|error", 1).text == "1- start\n2: warning: one\n3- fine\n--\n5- fine\n6: ERROR: two\n7- end"
    assert found("warning|error", 3).text.count("fine") == 3
    assert found("nothing") == Part("", 0, 0)
    assert found("warning|error", 1, offset=1, limit=15) == Part("6: ERROR: two", 0, 2)
    assert found("warning|error", 5, offset=1).text.startswith("3- fine")
    assert found("error", limit=5) == Part("6: ER", 0, 1)


def test_a_pattern_that_explodes_elsewhere_takes_no_time() -> None:
    began = time.perf_counter()
    assert found("(a+)+$", text="a" * 20_000 + "!").matches == 0
    assert time.perf_counter() - began < 1


def test_a_pattern_whose_every_step_is_large_is_refused_before_and_while_it_is_looked_for() -> None:
    with pytest.raises(PatternTooSlow):
        found("a{0,1000}b", text="a" * 900_000)
    with pytest.raises(PatternTooSlow):
        matching(LOG, SafePattern("error"), 0, 0, 4000, lambda: True)
    assert found(r"error|\d{1,5}", text="x" * 2_000_000).matches == 0


def test_what_stands_in_the_place_of_a_text_is_one_line() -> None:
    digest = digest_of("x")
    assert key_of(digest) == f"blob/{digest[:24]}"
    assert summary_of("a\nb" * 200, "") == summary_of("a\nb" * 200, " \n ")
    assert len(summary_of("z" * 900, "")) == 200
    assert summary_of("z", "a build\nlog") == "a build log"
    assert pointer("k", LOG, "a log") == "[offloaded k: 49 characters, 7 lines] a log"
    assert (line_count(""), line_count("a"), line_count("a\n"), line_count("a\n\n")) == (0, 1, 1, 2)
