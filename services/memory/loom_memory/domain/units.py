"""The part of a text that answers a question by itself: its paragraph, or the sentences around the best one."""

from typing import Final

import regex

from loom_memory.domain.analyzer import analyze_query, analyze_text

MAX_CHARS: Final = 800
"""Longest unit. Source: chosen; about 200 tokens, so that ten of them fit into a prompt."""

_PARAGRAPH = regex.compile(r"\n\s*\n")
_SENTENCE = regex.compile(r"(?<=[.!?。!?])\s+|(?<=[。!?])|\n")
_MAX_SENTENCES: Final = 400


def unit_of(value: str, query: str) -> tuple[str, bool]:
    """Returns the part of `value` that answers `query` best, and whether anything is left out.

    A text that is short enough is its own unit. Else it is the paragraph with the most of the query's words, or as many
    sentences around the best one of it as fit; of equal ones the first.
    """
    if len(value) <= MAX_CHARS:
        return value, False
    terms = set(analyze_query(query).term_ids)
    paragraphs = [part for part in _PARAGRAPH.split(value) if part.strip()]
    best = max(paragraphs, key=lambda part: _worth(part, terms), default=value)
    if len(best) <= MAX_CHARS:
        return best.strip(), True
    return _around(best, terms), True


def _around(text: str, terms: set[int]) -> str:
    """Returns as many whole sentences around the best one as fit."""
    sentences = [part for part in _SENTENCE.split(text) if part.strip()][:_MAX_SENTENCES]
    if not sentences:
        return text[:MAX_CHARS]
    place = max(range(len(sentences)), key=lambda at: (_worth(sentences[at], terms), -at))
    first = last = place
    size = len(sentences[place])
    while True:
        longer = [at for at in (last + 1, first - 1) if 0 <= at < len(sentences)]
        fitting = [at for at in longer if size + len(sentences[at]) + 1 <= MAX_CHARS]
        if not fitting:
            return " ".join(sentences[first : last + 1])[:MAX_CHARS]
        size += len(sentences[fitting[0]]) + 1
        first, last = min(first, fitting[0]), max(last, fitting[0])


def _worth(text: str, terms: set[int]) -> int:
    return len(terms.intersection(analyze_text(text).term_ids))
