"""Labels that a classifier gives to a text, and what may count as such."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

MAX_LABELS: Final = 32
"""Most labels of one text. Source: a memory has no more tags."""
MAX_LABEL_CHARS: Final = 64
"""Longest label. Source: a tag is no longer."""

# Source: chosen. Classifiers with more classes than this answer the best of them.
_MOST_GIVEN: Final = 1000


class UnreadableLabels(ValueError):
    """An answer holds no labels."""


@dataclass(frozen=True, slots=True)
class Label:
    """One label and its score, from 0 to 1."""

    label: str
    score: float


def labels_of(answer: object, min_score: float) -> tuple[Label, ...]:
    """Returns the labels of an answer that reach a score, best first, of equals in alphabetical order.

    An answer is `[{"label": "legal", "score": 0.93}, ...]`, that in a list of one, or that under `labels`.

    Raises:
        UnreadableLabels: It is none of these, a label is empty, too long, not printable or there twice, or a score
            is no number from 0 to 1.
    """
    given = answer.get("labels") if isinstance(answer, dict) else answer
    if isinstance(given, list) and len(given) == 1 and isinstance(given[0], list):
        given = given[0]
    if not isinstance(given, list) or len(given) > _MOST_GIVEN:
        raise UnreadableLabels("it is no list of labels")
    found = [_label(one) for one in given]
    if len({one.label for one in found}) != len(found):
        raise UnreadableLabels("a label is there twice")
    return _best(one for one in found if one.score >= min_score)


def _best(labels: Iterable[Label]) -> tuple[Label, ...]:
    return tuple(sorted(labels, key=lambda one: (-one.score, one.label))[:MAX_LABELS])


def _label(given: object) -> Label:
    if not isinstance(given, dict):
        raise UnreadableLabels("a label is no object")
    label, score = given.get("label"), given.get("score")
    if not isinstance(label, str) or not 1 <= len(label := label.strip()) <= MAX_LABEL_CHARS or not label.isprintable():
        raise UnreadableLabels("a label is empty, too long or not printable")
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1 or math.isnan(score):
        raise UnreadableLabels("a score is no number from 0 to 1")
    return Label(label, float(score))
