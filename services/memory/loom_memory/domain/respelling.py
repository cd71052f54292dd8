"""Reads words of a question that nothing stored holds as the nearest words that something near it does."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import Final

import regex

_WORD = regex.compile(r"[\p{Latin}\p{Cyrillic}\p{Greek}][\p{L}\p{M}'’-]*")
_MIN_CHARS: Final = 4
"""Shorter words have too many neighbours. Source: chosen."""

_ALIKE: Final = 0.8
"""Share of letters in common, in order, from which one word may be the other. Source: chosen: one slip in five letters,
two in ten."""

_MAX_WORDS: Final = 2_000


def respelled(query: str, texts: Iterable[str], common: Collection[str] = ()) -> str:
    """Returns the question with words that no text holds in the spelling of the nearest that one does.

    A question whose words are all held, or have no neighbour, comes back as it was. Only letters count, never digits:
    `v1` and `v2` are no misspellings of each other.

    Args:
        query: The question.
        texts: What was found nearest to it.
        common: Words that are right whatever the texts hold, such as those without meaning of their own; lower case.
    """
    held: dict[str, str] = {}
    for text in texts:
        for match in _WORD.finditer(text):
            word = match[0]
            if len(word) >= _MIN_CHARS and len(held) < _MAX_WORDS:
                held.setdefault(word.casefold(), word)
    pieces, end = [], 0
    for match in _WORD.finditer(query):
        word = match[0].casefold()
        if len(word) < _MIN_CHARS or word in held or word in common or _is_inflected(word, held):
            continue
        near = get_close_matches(word, [other for other in held if other[0] == word[0]], n=1, cutoff=_ALIKE)
        if near:
            pieces += [query[end : match.start()], held[near[0]]]
            end = match.end()
    return "".join([*pieces, query[end:]])


def _is_inflected(word: str, held: Collection[str]) -> bool:
    """Says whether the words differ by their endings alone: that is no slip."""
    stem = word[:-2] if len(word) > _MIN_CHARS + 1 else word
    return any(other.startswith(stem) or word.startswith(other) for other in held)
