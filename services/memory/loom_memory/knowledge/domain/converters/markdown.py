"""Markdown: the text stays as it is, and its headings are those of CommonMark, none inside code."""

from typing import Final

import regex
from markdown_it import MarkdownIt

from loom_memory.knowledge.domain.converters.converted import Converted
from loom_memory.knowledge.domain.sections import Heading, one_line

# Blocks alone are read: of what stands inside a line only marks of a heading matter, and their rules are the slow ones.
_BLOCKS: Final = MarkdownIt("commonmark", {"maxNesting": 20}).enable("table").disable(["inline", "reference"])
_FRONT_MATTER: Final = regex.compile(r"\A---\n(.{0,20000}?)\n---[ \t]*(?:\n|\Z)", regex.DOTALL)
_FRONT_TITLE: Final = regex.compile(r"^title:[ \t]*(.{1,300})$", regex.MULTILINE)
_LINK: Final = regex.compile(r"!?\[([^\]\[]{0,300})\]\([^()\s]{0,1000}\)")
_MARKS: Final = regex.compile(r"(?<!\\)(?:`+|\*{1,3}|~~|(?<!\w)_{1,3}|_{1,3}(?!\w))")
_ESCAPED: Final = regex.compile(r"\\([!-/:-@\[-`{-~])")
_CLOSING_ID: Final = regex.compile(r"\s*\{#[^}\s]{1,100}\}\s*$")


def from_markdown(text: str) -> Converted:
    """Returns a Markdown document; the title is that of its front matter, else its first heading of level 1."""
    front = _FRONT_MATTER.match(text)
    skipped = front.end() if front else 0
    headings = _headings(text, skipped)
    titled = _FRONT_TITLE.search(front[1]) if front else None
    title = one_line(titled[1].strip().strip("\"'")) if titled else ""
    if not title:
        title = next((heading.title for heading in headings if heading.level == 1), "")
    return Converted(text, headings, title)


def _headings(text: str, skipped: int) -> list[Heading]:
    body = text[skipped:]
    starts = _line_starts(body)
    found: list[Heading] = []
    tokens = _BLOCKS.parse(body)
    for place, token in enumerate(tokens):
        # Those inside lists and quotes belong to what is said there.
        if token.type != "heading_open" or token.level or token.map is None:
            continue
        first, behind = token.map
        title = plain_heading(tokens[place + 1].content)
        if title:
            found.append(
                Heading(
                    int(token.tag[1:]), title, skipped + starts[first], skipped + starts[min(behind, len(starts) - 1)]
                )
            )
    return found


def plain_heading(source: str) -> str:
    """Returns a heading without its marks: emphasis, code, links, an identifier behind it."""
    text = _CLOSING_ID.sub("", source)
    text = _LINK.sub(r"\1", text)
    return one_line(_ESCAPED.sub(r"\1", _MARKS.sub("", text)))


def _line_starts(text: str) -> list[int]:
    """Returns the offset of each line as the parser counts them, and of the end."""
    starts = [0]
    place = text.find("\n")
    while place >= 0:
        starts.append(place + 1)
        place = text.find("\n", place + 1)
    starts.append(len(text))
    return starts
