"""Rankings of documents by how well they answer a query, and what may count as one.

Scores go from 0 to 1, ends included. Order: the best first, of equals the one that was given first.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_WORD: Final = re.compile(r"\w+")

# Source: chosen. Scores are sums of 32-bit floats: one may miss an end by its rounding.
_ROUNDING: Final = 1e-3
# Source: chosen. Words of a document that the fake reads; more changes no order that anyone looks at.
_MOST_WORDS: Final = 10_000


class UnreadableRanking(ValueError):
    """An answer is no ranking of the documents that were sent."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """One document and its score."""

    index: int
    """Its place among those that were given, from 0."""
    score: float


@dataclass(frozen=True, slots=True)
class Spent:
    """What a reranker that is no model of text says that it spent."""

    tokens: int = 0
    searches: int = 0


@dataclass(frozen=True, slots=True)
class Ranking:
    """What a reranker made of the documents."""

    results: tuple[Ranked, ...]
    """All of them, in order."""
    provider: str
    model: str = ""
    reranked: bool = True
    """False where the answer could not be read, so that the given order stands."""


def in_order(results: Iterable[Ranked]) -> tuple[Ranked, ...]:
    """Returns the results, the best first."""
    return tuple(sorted(results, key=lambda one: (-one.score, one.index)))


def given_order(count: int) -> tuple[Ranked, ...]:
    """Returns the order in which the documents came; scores fall evenly from 1 to above 0."""
    return tuple(Ranked(index, 1 - index / count) for index in range(count))


def ranking_of(entries: Iterable[tuple[object, object]], count: int, *, logits: bool = False) -> tuple[Ranked, ...]:
    """Returns what a reranker answered, which must score each document exactly once.

    Args:
        entries: Index and score of each result.
        count: How many documents were sent.
        logits: Whether scores have no bounds, and are brought between 0 and 1 here.

    Raises:
        UnreadableRanking: An index is doubled, missing or none of them, or a score is no number or out of range.
    """
    scores: dict[int, float] = {}
    for index, score in entries:
        if type(index) is not int or not 0 <= index < count or index in scores:
            raise UnreadableRanking("an index is none of the documents', or there twice")
        scores[index] = _score(score, logits=logits)
    if len(scores) != count:
        raise UnreadableRanking("a document has no score")
    return in_order(Ranked(index, score) for index, score in scores.items())


def listwise(value: Mapping[str, object], count: int) -> tuple[Ranked, ...]:
    """Returns the ranking in a language model's answer, `{"results": [{"index": 0, "score": 0.9}]}`.

    A model forgets documents and invents others: what is wrong is passed over, the first score of a document counts,
    and documents without one follow in the order in which they came.

    Raises:
        UnreadableRanking: Nothing of it is right.
    """
    given = value.get("results")
    scores: dict[int, float] = {}
    for one in given if isinstance(given, list) else ():
        if not isinstance(one, Mapping):
            continue
        index = one.get("index")
        if type(index) is not int or not 0 <= index < count or index in scores:
            continue
        try:
            scores[index] = _score(one.get("score"))
        except UnreadableRanking:
            continue
    if not scores:
        raise UnreadableRanking("no document has a score")
    return in_order(Ranked(index, scores.get(index, 0.0)) for index in range(count))


def by_shared_words(query: str, documents: Sequence[str]) -> tuple[Ranked, ...]:
    """Returns the ranking by how many of the query's words a document has: what the fake answers."""
    asked = _words(query)
    shares = (len(asked & _words(text)) / len(asked) if asked else 0.0 for text in documents)
    return in_order(Ranked(index, share) for index, share in enumerate(shares))


def _words(text: str) -> set[str]:
    found: set[str] = set()
    for at, word in enumerate(_WORD.finditer(text.casefold())):
        if at == _MOST_WORDS:
            break
        found.add(word[0])
    return found


def _score(given: object, *, logits: bool = False) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise UnreadableRanking("a score is no number")
    try:
        score = float(given)
    except OverflowError:
        raise UnreadableRanking("a score is out of range") from None
    if not math.isfinite(score):
        raise UnreadableRanking("a score is no number")
    if logits:
        return _sigmoid(score)
    if not -_ROUNDING <= score <= 1 + _ROUNDING:
        raise UnreadableRanking("a score is out of range")
    return min(1.0, max(0.0, score))


def _sigmoid(logit: float) -> float:
    if logit >= 0:
        return 1 / (1 + math.exp(-min(logit, 700.0)))
    power = math.exp(max(logit, -700.0))
    return power / (1 + power)
