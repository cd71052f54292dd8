"""Pages of the documentation and their sections."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Literal

from markdown_it import MarkdownIt

Audience = Literal["user", "operator"]

_OPERATOR: Final = ("operations/", "decisions/", "architecture.md", "benchmarks.md")
# Blocks alone are read: of what stands inside a line only the marks of a heading matter.
_BLOCKS: Final = MarkdownIt("commonmark").enable("table").disable(["inline", "reference"])
_LINK: Final = re.compile(r"!?\[([^\]\[]*)\]\([^()\s]*\)")
_MARKS: Final = re.compile(r"`+|\*{1,3}")


@dataclass(frozen=True, slots=True)
class Section:
    """One section of a page.

    Attributes:
        level: Level of its heading; 1 is the page's own, which also holds what stands before any heading.
        title: Title, without marks.
        anchor: Anchor; each of a page has another one.
        breadcrumb: Titles from the page's down to its own.
        text: What stands between its heading and the next one, of any level; the heading is left out.
        start: Where its heading begins, in characters.
        end: Where what stands under it ends, sections of deeper levels included.
    """

    level: int
    title: str
    anchor: str
    breadcrumb: tuple[str, ...]
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Page:
    """One page: its path below the documentation, its text and its sections in their order."""

    path: str
    text: str
    sections: tuple[Section, ...]

    @property
    def audience(self) -> Audience:
        """Whom the page is for: those who run or build Loom, or those who use it."""
        return "operator" if self.path.startswith(_OPERATOR) else "user"

    def section(self, anchor: str) -> Section | None:
        """Returns the section with an anchor."""
        return next((section for section in self.sections if section.anchor == anchor), None)


@dataclass(frozen=True, slots=True)
class _Heading:
    level: int
    title: str
    start: int
    end: int


def page_of(path: str, text: str) -> Page:
    """Returns a page, split at its headings; one without any is a section by the name of its path."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    headings = _headings(text) or [_Heading(1, path, 0, 0)]
    if headings[0].start > 0 and text[: headings[0].start].strip():
        headings.insert(0, _Heading(1, path, 0, 0))
    above: list[_Heading] = []
    taken: dict[str, int] = {}
    sections = []
    for place, heading in enumerate(headings):
        above = [each for each in above if each.level < heading.level] + [heading]
        behind = headings[place + 1].start if place + 1 < len(headings) else len(text)
        sections.append(
            Section(
                heading.level,
                heading.title,
                _anchor(heading.title, taken),
                tuple(each.title for each in above),
                text[heading.end : behind].strip("\n"),
                heading.start,
                _end(headings, place, len(text)),
            )
        )
    return Page(path, text, tuple(sections))


def _end(headings: Sequence[_Heading], place: int, length: int) -> int:
    level = headings[place].level
    return next((each.start for each in headings[place + 1 :] if each.level <= level), length)


def _anchor(title: str, taken: dict[str, int]) -> str:
    """Returns an anchor as code hosts make it: a repeated one gets a number."""
    plain = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
    times = taken.get(plain, 0)
    taken[plain] = times + 1
    return f"{plain}-{times}" if times else plain


def _headings(text: str) -> list[_Heading]:
    lines = text.split("\n")
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    found = []
    tokens = _BLOCKS.parse(text)
    for place, token in enumerate(tokens):
        # Those inside lists and quotes belong to what is said there.
        if token.type != "heading_open" or token.level or token.map is None:
            continue
        first, behind = token.map
        title = " ".join(_MARKS.sub("", _LINK.sub(r"\1", tokens[place + 1].content)).split())
        if title:
            found.append(_Heading(int(token.tag[1:]), title, starts[first], min(starts[behind], len(text))))
    return found
