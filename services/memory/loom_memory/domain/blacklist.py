"""Words and patterns that a namespace does not let be written."""

import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import regex

from loom_common.safe_patterns import SafePattern

UNSEEN: Final = frozenset("\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2062\u2063\u2064\ufeff")
"""Letters that join nothing and show nothing: a word with one inside is the same word to a reader."""

_UNSEEN = regex.compile(f"[{''.join(sorted(UNSEEN))}]+")
_UNSPACED = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]")
_SPACE = regex.compile(r"\s+")


class Blacklist:
    """Finds what may not be written.

    Words are found whole, in any case, width and spacing; in scripts without spaces, anywhere. Patterns are found as
    they are written, in the text as it was given.
    """

    def __init__(self, words: Iterable[str], patterns: Iterable[str]) -> None:
        """Compiles them.

        Raises:
            PatternRefused: A pattern is none of RE2; who sets a policy is told so.
        """
        folded = sorted({word for each in words if (word := _folded(each).strip())})
        whole = [_escaped(word) for word in folded if _UNSPACED.search(word) is None]
        inside = [_escaped(word) for word in folded if _UNSPACED.search(word) is not None]
        parts = [rf"(?:^|[^\pL\pN_])(?:{'|'.join(whole)})(?:$|[^\pL\pN_])"] if whole else []
        parts += ["|".join(inside)] if inside else []
        self._words = [SafePattern(part) for part in parts]
        self._patterns = [SafePattern(pattern) for pattern in patterns]

    def holds(self, texts: Iterable[str]) -> bool:
        """Says whether any of the texts holds something that may not be written."""
        if not self._words and not self._patterns:
            return False
        return any(self._is_in(text) for text in texts if text)

    def _is_in(self, text: str) -> bool:
        if any(pattern.is_in(text) for pattern in self._patterns):
            return True
        return bool(self._words) and any(word.is_in(_folded(text)) for word in self._words)


@lru_cache(maxsize=256)
def blacklist_of(words: tuple[str, ...], patterns: tuple[str, ...]) -> Blacklist:
    """Returns the blacklist of a policy, made once."""
    return Blacklist(words, patterns)


def _folded(text: str) -> str:
    return str(_SPACE.sub(" ", _UNSEEN.sub("", unicodedata.normalize("NFKC", text)))).casefold()


def _escaped(word: str) -> str:
    # RE2 takes a backslash before ASCII punctuation alone.
    return "".join(f"\\{letter}" if letter.isascii() and not letter.isalnum() else letter for letter in word)
