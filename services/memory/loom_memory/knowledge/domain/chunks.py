"""Chunks: pieces of a section that are embedded and found one by one.

A chunk lies within one section, so that it has one breadcrumb. Neighbours overlap by about a sentence, so that what is
said across their border is whole in one of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import regex

from loom_memory.knowledge.domain.sections import Section

MAX_BYTES: Final = 800
"""Longest chunk in bytes of UTF-8: some 200 tokens, which with its breadcrumb fits the smallest model's window of 256.

Source: chosen. English has four bytes a token and CJK three; what is longer in tokens is embedded in parts."""

OVERLAP_BYTES: Final = 120
"""Most that a chunk repeats of the one before."""

_LEAST_SHARE: Final = 0.5
_SENTENCE_END: Final = regex.compile(r"[.!?][\"')\]]*\s+|[。！？；]\s*")


class ChunkPlace(NamedTuple):
    """Names one chunk of one version of a document."""

    source_uri: str
    version: int
    chunk: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk: its number in the document, the ordinal of its section, and its place in the stored text."""

    number: int
    section: int
    start: int
    end: int


def chunks_of(text: str, sections: Sequence[Section]) -> list[Chunk]:
    """Returns the chunks of a document, in order.

    A heading alone is no chunk where sections stand below it, whose breadcrumbs say it.
    """
    found: list[Chunk] = []
    for place, section in enumerate(sections):
        below = place + 1 < len(sections) and sections[place + 1].level > section.level
        if not text[section.start : section.end].strip():
            continue
        if below and section.heading and not text[section.body : section.end].strip():
            continue
        for start, end in _pieces(text, section.start, section.end):
            found.append(Chunk(len(found), section.ordinal, start, end))
    return found


def _pieces(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    while True:
        limit = _reach(text, start, end)
        stop = end if limit == end else _break(text, start, limit)
        if text[start:stop].strip():
            yield start, stop
        if stop == end:
            return
        start = _overlapping(text, start, stop)


def _reach(text: str, start: int, end: int) -> int:
    """Returns how far a chunk from `start` on may reach."""
    piece = text[start : min(start + MAX_BYTES, end)]
    encoded = piece.encode("utf-8", "surrogatepass")
    if len(encoded) <= MAX_BYTES:
        return start + len(piece)
    # At least one character goes in, whatever its length.
    return start + max(1, len(encoded[:MAX_BYTES].decode("utf-8", "ignore")))


def _break(text: str, start: int, limit: int) -> int:
    """Returns the best place to end a chunk: behind a paragraph, a line, a sentence, a word, in this order."""
    least = start + max(1, int((limit - start) * _LEAST_SHARE))
    for mark in ("\n\n", "\n"):
        found = text.rfind(mark, least, limit)
        if found >= 0:
            return found + len(mark)
    ends = [match.end() for match in _SENTENCE_END.finditer(text, least, limit)]
    if ends:
        return int(ends[-1])
    blank = max(text.rfind(" ", least, limit), text.rfind("\t", least, limit))
    return blank + 1 if blank >= 0 else limit


def _overlapping(text: str, start: int, stop: int) -> int:
    """Returns where the next chunk begins: at a line, sentence or word shortly before the end of this one."""
    tail = text[max(start + 1, stop - OVERLAP_BYTES) : stop].encode("utf-8", "surrogatepass")[-OVERLAP_BYTES:]
    first = stop - len(tail.decode("utf-8", "ignore"))
    line = text.find("\n", first, stop - 1)
    if line >= 0 and text[line + 1 : stop].strip():
        return line + 1
    sentence = _SENTENCE_END.search(text, first, stop - 1)
    if sentence is not None and text[sentence.end() : stop].strip():
        return int(sentence.end())
    blank = text.find(" ", first, stop - 1)
    return blank + 1 if blank >= 0 and text[blank + 1 : stop].strip() else stop
