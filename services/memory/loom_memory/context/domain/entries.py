"""What a section of a pack is made of."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import regex

from loom_common.citations import encode
from loom_memory.domain.memory import Memory

# Whatever some reader takes for the end of a line or a paragraph, and what turns the direction of what is read.
_BREAKS: Final = regex.compile(
    r"[\s\u2028\u2029\x85]+|[\u200e\u200f\u202a-\u202e\u2066-\u2069\x00-\x08\x0b\x0c\x0e-\x1f\x7f]+"
)
_KIND: Final = regex.compile(r"[()\[\]\s]+")

CUT: Final = " [...]"
"""Stands where only the beginning of an entry is shown."""


class Tokens(Protocol):
    """Counts tokens as some model does."""

    def count(self, text: str) -> int:
        """Returns how many tokens a text takes."""
        ...

    def beginning(self, text: str, most: int) -> str:
        """Returns the longest beginning of a text that takes at most so many tokens; never half a character."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a section.

    Attributes:
        id: What names it in its plane.
        text: What is shown of it; may hold several lines.
        score: How well it answers, 0 to 1; 0 where nothing is scored.
        is_whole: Whether a part of it says nothing: it is shown whole or not at all.
    """

    id: str
    text: str
    score: float = 0.0
    is_whole: bool = False


def on_one_line(text: str) -> str:
    """Returns the text with every break in it as a space."""
    return str(_BREAKS.sub(" ", text)).strip()


def memory_entry(memory: Memory, score: float = 0.0, *, is_whole: bool = False) -> Entry:
    """Returns a memory as `[date] [key] (kind) text`, on one line."""
    content = memory.content
    at = (content.event_time or memory.created_at).strftime("%Y-%m-%d")
    kind = _KIND.sub(" ", content.kind).strip()
    text = f"[{at}] [{encode(memory.identity.key)}] ({kind}) {on_one_line(content.value)}"
    return Entry(memory.identity.key, text.rstrip(), score, is_whole)


def distinct(entries: Sequence[Entry], known: Collection[str] = ()) -> list[Entry]:
    """Returns the entries whose text stands neither before them nor among `known`."""
    seen = set(known)
    kept = []
    for entry in entries:
        if entry.text not in seen:
            seen.add(entry.text)
            kept.append(entry)
    return kept
