"""What the key of a memory says: some keys are words, others only name a row.

The rule is written as patterns that this process and the database read alike, because both choose by it.
"""

from typing import Final

import regex

FIRST_KEY_CHUNK: Final = 65_500
"""Number of the first row of vectors that stands for a key; what lies below are chunks of the value.

Source: chosen. Under the largest number of the column, with room for the chunks of the longest key; the longest value
has fewer than this even where every byte is a token.
"""

TOKENS: Final = r"[\p{L}\p{M}\p{N}]+"
_DENSE: Final = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
WORD: Final = rf"^(\p{{L}}[\p{{L}}\p{{M}}]{{2,31}}|[{_DENSE}][{_DENSE}\p{{M}}ー]*)$"
"""A token that is a word: letters alone, three or more, or any of a script that has words of one or two letters or puts
no space between words. The mark that lengthens a vowel of Katakana is of no script."""

NUMBERED: Final = r"\p{N}"
"""A token that counts, or is part of a digest."""

CAMEL: Final = r"(\p{Ll})(\p{Lu})"
"""Where a word ends inside a token, as in `preferredEditor`."""

CAMEL_APART: Final = r"\1 \2"

GAPS: Final = r"[^\p{L}\p{M}\p{N}]+"

_TOKENS, _WORD, _NUMBERED = regex.compile(TOKENS), regex.compile(WORD), regex.compile(NUMBERED)
_CAMEL, _GAPS = regex.compile(CAMEL), regex.compile(GAPS)


def key_text(key: str) -> str:
    """Returns what a key says, to be embedded beside the value; empty where it only names a row.

    A key says something when more of its tokens are words than have digits: `preferred_editor` does, and `turn-00017`,
    `2026-11-30`, digests, UUIDs and the keys that Loom makes do not.
    """
    tokens = _TOKENS.findall(key)
    words = sum(_WORD.search(token) is not None for token in tokens)
    if words <= sum(_NUMBERED.search(token) is not None for token in tokens):
        return ""
    return words_of(key)


def words_of(key: str) -> str:
    """Returns the tokens of a key, apart from each other."""
    return str(_GAPS.sub(" ", _CAMEL.sub(CAMEL_APART, key))).strip(" ")
