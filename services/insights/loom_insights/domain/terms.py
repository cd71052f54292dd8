"""Words and identifiers of a text, as the index of the documentation compares them."""

import re
from typing import Final

import Stemmer

IDENTIFIER_WEIGHT: Final = 3
"""How often a whole identifier of a question counts. Source: chosen, so that the line that names it comes first."""

MOST_TERMS: Final = 64
"""Most different terms of one question that are asked for; the first ones identify it."""

_TOKEN: Final = re.compile(r"\w+(?:[.\-/:]\w+)*")
_BREAK: Final = re.compile(r"[.\-/:_]+")
# What marks a name: a mark inside of it, or capitals and digits in a row.
_MARKED: Final = re.compile(r"\w[._/:]\w|^[A-Z][A-Z0-9]{2,}$")
_FUNCTION_WORDS: Final = (
    "a an and are as at be but by can do does for from has have how i if in into is it its me my no not of on or so "
    "than that the their then there these this to was we what when where which who why will with you your"
)
_STOP_WORDS: Final = frozenset(_FUNCTION_WORDS.split())


class Analyzer:
    """Turns texts into terms. Not for several threads at once: the stemmer keeps a cache."""

    def __init__(self) -> None:
        self._stemmer = Stemmer.Stemmer("english")

    def of_text(self, text: str) -> list[str]:
        """Returns the terms of a text in order: stems of its words, and each identifier whole beside its parts."""
        terms: list[str] = []
        for token in _TOKEN.findall(text):
            if _MARKED.search(token):
                terms.append(token.casefold())
            terms += self._words(token)
        return terms

    def of_query(self, text: str) -> list[str]:
        """Returns the terms of a question: an identifier counts several times, and no stop word unless all are."""
        identifiers = [token.casefold() for token in _TOKEN.findall(text) if _MARKED.search(token)]
        words = self.of_text(text)
        telling = [word for word in words if word not in _STOP_WORDS] or words
        return list(dict.fromkeys(telling))[:MOST_TERMS] + (IDENTIFIER_WEIGHT - 1) * identifiers[:MOST_TERMS]

    def _words(self, token: str) -> list[str]:
        words = [word for word in _BREAK.split(token.casefold()) if word]
        return [word if word in _STOP_WORDS else self._stemmer.stemWord(word) for word in words]
