"""Recognises what Loom itself said, where it was stored again: agents that keep transcripts quote their recalls."""

from typing import Final

import regex

from loom_memory.domain.reader import READING_RULE

# Each stands in what a search answers as text, and in hardly anything that a person would write.
_QUOTED: Final = regex.compile(
    r"\bloom_search ['\"][^\n]{0,220}?['\"]: \d+ memory\b"
    r"|<<(?:data|end) (?:memories|documents|profile|conversations) [0-9a-f]{16}>>"
    rf"|{regex.escape(READING_RULE[:60])}",
)
# An answer that is quoted stands near the beginning; a search looks at many texts.
_MOST_CHARS: Final = 4_000


def is_quoted_recall(text: str) -> bool:
    """Says whether a text quotes an answer of this search."""
    return _QUOTED.search(text[:_MOST_CHARS]) is not None
