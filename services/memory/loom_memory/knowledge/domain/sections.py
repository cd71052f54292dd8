"""Sections: what lies between two headings. Together they are the whole text, in order and without overlap.

Offsets count code points of the stored text; ends are out. A section begins with its heading's line.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import regex

from loom_memory.knowledge.domain.noise import Noise, noise_of

MAX_SECTIONS: Final = 5_000
"""Most sections of one document. Source: chosen; one of more has its deepest headings, then its last, as plain text."""

MAX_HEADING_CHARS: Final = 300
"""Longest heading that is kept; a longer line is cut."""

SEPARATOR: Final = " > "
"""Stands between the headings of a breadcrumb, in answers and in citations."""

TOP_ANCHOR: Final = "top"
"""Anchor of what stands before the first heading."""

_MAX_ANCHOR_CHARS: Final = 96
_NO_ANCHOR: Final = regex.compile(r"[^\p{L}\p{M}\p{N}_\- ]+")
_BLANKS: Final = regex.compile(r"\s+")


class Heading(NamedTuple):
    """A heading as a converter found it.

    Attributes:
        level: 1 for the highest.
        title: Its text on one line.
        start: Offset of the beginning of its line.
        body: Offset behind its line, or lines.
    """

    level: int
    title: str
    start: int
    body: int


@dataclass(frozen=True, slots=True)
class Section:
    """One section.

    Attributes:
        ordinal: Its place in the document, from 0.
        anchor: Unique within the document.
        heading: Its heading; empty for what stands before the first.
        level: Level of the heading; 0 for what stands before the first.
        heading_path: The document's title and the headings down to its own.
        start: Offset of its heading.
        end: Offset behind its text.
        body: Offset behind its heading.
        noise: What makes it noise; empty for a section that says something.
    """

    ordinal: int
    anchor: str
    heading: str
    level: int
    heading_path: tuple[str, ...]
    start: int
    end: int
    body: int
    noise: Noise = Noise.NONE

    @property
    def breadcrumb(self) -> str:
        """Its headings on one line."""
        return SEPARATOR.join(self.heading_path)


def sections_of(text: str, headings: Sequence[Heading], title: str, source_uri: str = "") -> list[Section]:
    """Returns the sections of a text, which tile it; an empty text has none.

    Args:
        text: The stored text.
        headings: In order of `start`.
        title: The document's title, with which every path begins.
        source_uri: Where it comes from: a changelog is known by its name too.
    """
    if not text:
        return []
    kept = _within_bounds([heading for heading in headings if heading.start < len(text)])
    marks = [*kept]
    if not kept or kept[0].start > 0:
        marks.insert(0, Heading(0, "", 0, 0))
    bounds = pairwise([*(mark.start for mark in marks), len(text)])
    anchors = _anchors(marks)
    found: list[Section] = []
    for ordinal, (mark, path, anchor, (start, end)) in enumerate(
        zip(marks, _paths(marks, title), anchors, bounds, strict=True)
    ):
        body = min(mark.body, end)
        noise = noise_of(path, text[body:end], source_uri)
        found.append(Section(ordinal, anchor, mark.title, mark.level, path, start, end, body, noise))
    return found


def slug(heading: str) -> str:
    """Returns what an anchor of a heading begins with: as code hosts make them, letters of every script kept."""
    folded = unicodedata.normalize("NFKC", heading).casefold()
    kept = _BLANKS.sub("-", _NO_ANCHOR.sub("", folded).strip())
    return str(kept)[:_MAX_ANCHOR_CHARS].strip("-") or "section"


def one_line(text: str) -> str:
    """Returns a heading on one line, cut to its bound."""
    return " ".join(text.split())[:MAX_HEADING_CHARS].rstrip()


def _within_bounds(headings: list[Heading]) -> list[Heading]:
    """Leaves out the deepest levels, then the last headings, until there are not too many."""
    most = MAX_SECTIONS - 1  # one may stand before the first heading
    while len(headings) > most:
        deepest = max(heading.level for heading in headings)
        fewer = [heading for heading in headings if heading.level < deepest]
        if not fewer:
            return headings[:most]
        headings = fewer
    return headings


def _paths(marks: Sequence[Heading], title: str) -> Iterator[tuple[str, ...]]:
    """Yields the heading path of each mark. The heading that is the document's title adds nothing to it."""
    stack: list[Heading] = []
    for place, mark in enumerate(marks):
        while stack and stack[-1].level >= mark.level:
            stack.pop()
        is_title = mark.title == title and mark.level == 1 and not any(each.title for each in marks[:place])
        if mark.title and not is_title:
            stack.append(mark)
        yield (title, *(each.title for each in stack))


def _anchors(marks: Sequence[Heading]) -> list[str]:
    """Returns an anchor for each mark; a heading that repeats an earlier one gets a number, as code hosts give it."""
    taken: set[str] = set()
    next_number: dict[str, int] = {}
    found: list[str] = []
    for mark in marks:
        base = slug(mark.title) if mark.title else TOP_ANCHOR
        anchor, number = base, next_number.get(base, 1)
        while anchor in taken:
            anchor = f"{base}-{number}"
            number += 1
        next_number[base] = number
        taken.add(anchor)
        found.append(anchor)
    return found
