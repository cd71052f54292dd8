"""Texts that are parked outside of a context: their keys, the line that stands in their place, and reading parts."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from loom_common.call import Scope
from loom_memory.context.domain.entries import on_one_line

SUMMARY_CHARS: Final = 200
"""Characters of a text that are its summary where it has no other."""

_PREFIX: Final = "blob/"
# Source: chosen; of a billion texts of one namespace two with the same are less likely than one in 10^10.
_DIGEST_CHARS: Final = 24


@dataclass(frozen=True, slots=True)
class Blob:
    """One parked text.

    Attributes:
        digest: SHA-256 of the text, in hexadecimal.
        summary: What it is, in one line.
        user_id: User of whoever parked it; empty for none.
        actor: Who parked it: `human:` or `process:` and the token's subject.
    """

    scope: Scope
    key: str
    content: str
    digest: str
    summary: str
    user_id: str
    actor: str
    created_at: datetime
    expires_at: datetime

    @property
    def lines(self) -> int:
        """Number of lines; a newline at the end begins none."""
        return line_count(self.content)


# Source: measured 2026-12-01, two cores: RE2 takes up to 15 ns for a step where its automaton has no room. A pattern of
# a hundred instructions is looked for in the longest text, were it one line.
_MOST_STEPS_OF_A_LINE: Final = 200_000_000


class PatternTooSlow(ValueError):
    """A pattern that takes too long over a text."""


class Pattern(Protocol):
    """Says whether a line matches, in time that grows with its length and no faster."""

    @property
    def steps_per_char(self) -> int:
        """Returns the most steps that one character of a text may take."""
        ...

    def is_in(self, text: str) -> bool:
        """Says whether it matches anywhere in a text."""
        ...


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a text.

    Attributes:
        next_offset: Where to go on; 0 at the end.
        matches: Lines of the whole text that match; 0 for a slice.
    """

    text: str
    next_offset: int
    matches: int = 0


def digest_of(content: str) -> str:
    """Returns the digest of a text."""
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()


def key_of(digest: str) -> str:
    """Returns the key of a text that has none of its own."""
    return f"{_PREFIX}{digest[:_DIGEST_CHARS]}"


def summary_of(content: str, given: str) -> str:
    """Returns the summary as one line: what the caller says, else the first characters of the text."""
    return on_one_line(given) or on_one_line(content[:SUMMARY_CHARS])


def line_count(content: str) -> int:
    """Returns the number of lines; a newline at the end begins none."""
    return len(_lines(content))


def pointer(key: str, content: str, summary: str) -> str:
    """Returns the line that stands in the place of a text."""
    return (
        f"[offloaded {on_one_line(key)}: {len(content):,} characters, {line_count(content):,} lines] {summary}".rstrip()
    )


def sliced(content: str, offset: int, limit: int) -> Part:
    """Returns at most `limit` characters from `offset` on."""
    end = min(offset + limit, len(content))
    return Part(content[offset:end], end if end < len(content) else 0)


def matching(
    content: str, pattern: Pattern, around: int, offset: int, limit: int, is_over: Callable[[], bool] = lambda: False
) -> Part:
    """Returns the lines that match, each with its number, and the lines around them.

    Args:
        content: The text.
        pattern: What to look for in each line.
        around: Lines to show before and after each.
        offset: Matching lines to pass over.
        limit: Most characters to return. At least the first match is shown, cut where it alone is longer.
        is_over: Says whether the time is up.

    Raises:
        PatternTooSlow: The time was up before the last line, or one line alone may take too long.
    """
    lines = _lines(content)
    if max(map(len, lines), default=0) * pattern.steps_per_char > _MOST_STEPS_OF_A_LINE:
        raise PatternTooSlow("is too large for a text with so long a line; shorten its repetitions")
    found = []
    for number, line in enumerate(lines):
        if is_over():
            raise PatternTooSlow("takes too long over this text; shorten its repetitions")
        if pattern.is_in(line):
            found.append(number)
    matched = set(found)
    parts: list[str] = []
    # A page goes on behind the match before it.
    length, last = 0, found[offset - 1] if 0 < offset <= len(found) else -1
    for place, number in enumerate(found[offset:], offset):
        first = max(number - around, last + 1)
        # Up to the next match: what stands behind this one alone.
        until = min(number + around, len(lines) - 1)
        if place + 1 < len(found):
            until = min(until, found[place + 1] - 1)
        shown = [f"{at + 1}{':' if at in matched else '-'} {lines[at]}" for at in range(first, until + 1)]
        if around and parts and first > last + 1:
            shown.insert(0, "--")
        added = sum(len(line) + 1 for line in shown)
        if length + added > limit:
            if not parts:
                # What stands before a match must not take its place.
                whole = "\n".join(shown) if added - 1 <= limit else f"{number + 1}: {lines[number]}"
                return Part(whole[:limit], _next(place + 1, found), len(found))
            return Part("\n".join(parts), place, len(found))
        parts.extend(shown)
        length += added
        last = until
    return Part("\n".join(parts), 0, len(found))


def _next(place: int, found: Sequence[int]) -> int:
    return place if place < len(found) else 0


def _lines(content: str) -> list[str]:
    lines = content.split("\n")
    return lines[:-1] if lines[-1] == "" else lines
