"""Reads the distribution of a model's cosines and derives its thresholds from it.

A cosine of 0.4 means another thing to each model. What does not depend on the model is the place of a gate among pairs
whose meaning is known: paraphrases, questions with the fact that answers them, and distractors, which have nothing to
do with each other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Final, NamedTuple

import numpy as np

from loom_embedding.domain.embedder import Vector
from loom_embedding.domain.thresholds import DECIMALS, Thresholds

DRIFT: Final = 0.05
"""Change of a gate between two calibrations of one model from which an operator is told."""

# The margins of the table of thresholds.
_ABOVE_DISTRACTORS: Final = 0.02
_ABSTAIN_MARGIN: Final = 0.05
_REWRITE_MARGIN: Final = 0.01

# By how much a cosine of vectors of 32 bits may miss 1.
_ROUNDING: Final = 1e-4


class Pair(NamedTuple):
    """Two texts."""

    one: str
    other: str


@dataclass(frozen=True, slots=True)
class Corpora:
    """Pairs whose relation is known."""

    paraphrases: tuple[Pair, ...]
    questions: tuple[Pair, ...]
    """A question and a fact that answers it."""
    distractors: tuple[Pair, ...]


@dataclass(frozen=True, slots=True)
class Quantiles:
    """What the thresholds are derived from. Units: cosine."""

    paraphrase_p50: float
    paraphrase_p75: float
    question_p10: float
    question_p25: float
    question_p75: float
    distractor_p90: float


class CalibrationUnusable(ValueError):
    """The pairs do not tell related texts from unrelated ones; the text says how."""


def percentile(cosines: Sequence[float], percent: float) -> float:
    """Returns a percentile by linear interpolation between the two closest ranks (Hyndman and Fan's type 7).

    Of n sorted values it lies at the place `(n - 1) * percent / 100`, so that the median of two is their mean.

    Raises:
        ValueError: There are no values.
    """
    if not len(cosines):
        raise ValueError("a percentile of nothing")
    return float(np.percentile(np.asarray(cosines, dtype=np.float64), percent, method="linear"))


def quantiles_of(paraphrases: Sequence[float], questions: Sequence[float], distractors: Sequence[float]) -> Quantiles:
    """Returns the quantiles of three lists of cosines, none of them empty."""
    return Quantiles(
        paraphrase_p50=percentile(paraphrases, 50),
        paraphrase_p75=percentile(paraphrases, 75),
        question_p10=percentile(questions, 10),
        question_p25=percentile(questions, 25),
        question_p75=percentile(questions, 75),
        distractor_p90=percentile(distractors, 90),
    )


def own_quantiles(similar: Sequence[float], distractors: Sequence[float], cluster: Quantiles) -> Quantiles:
    """Returns the quantiles of a namespace: its own pairs, and the questions of the model's calibration."""
    return Quantiles(
        paraphrase_p50=percentile(similar, 50),
        paraphrase_p75=percentile(similar, 75),
        question_p10=cluster.question_p10,
        question_p25=cluster.question_p25,
        question_p75=cluster.question_p75,
        distractor_p90=percentile(distractors, 90),
    )


def derive_thresholds(quantiles: Quantiles) -> Thresholds:
    """Returns the thresholds, each as the table of the manual states it.

    Raises:
        CalibrationUnusable: Unrelated pairs are as near as paraphrases, so that no gate would mean anything, or the
            quantiles are none of cosines, as in a row that was damaged.
    """
    if not all(abs(quantile) <= 1 + _ROUNDING for quantile in astuple(quantiles)):  # false of what is no number too
        raise CalibrationUnusable("they hold what no cosine is")
    noise_floor = quantiles.distractor_p90 + _ABOVE_DISTRACTORS
    # As they are served: a floor that rounds to 1 leaves no cosine above it.
    if _rounded(quantiles.paraphrase_p50) <= _rounded(noise_floor):
        raise CalibrationUnusable(
            f"half of the similar pairs lie at or under {quantiles.paraphrase_p50:.3f}, which is no nearer than "
            f"unrelated ones ({noise_floor:.3f})"
        )
    rewrite = max(quantiles.question_p10, noise_floor + _REWRITE_MARGIN)
    hyde = max(quantiles.question_p25, rewrite)
    return Thresholds(
        noise_floor=_rounded(noise_floor),
        abstain=_rounded(noise_floor + _ABSTAIN_MARGIN),
        query_rewrite=_rounded(rewrite),
        hyde_fallback=_rounded(hyde),
        rerank_skip=_rounded(max(quantiles.question_p75, hyde)),
        conflict=_rounded(quantiles.paraphrase_p50),
        duplicate=_rounded(quantiles.paraphrase_p75),
    )


def cosines_of(pairs: Sequence[Pair], vectors: Mapping[str, Vector]) -> list[float]:
    """Returns the cosine of each pair, in order; `vectors` holds each text's, of unit length."""
    return [float(np.dot(vectors[pair.one], vectors[pair.other])) for pair in pairs]


def texts_of(*corpora: Sequence[Pair]) -> list[str]:
    """Returns every text of the pairs once, in order."""
    return list(dict.fromkeys(text for pairs in corpora for pair in pairs for text in pair))


def _rounded(cosine: float) -> float:
    # A model whose vectors fall together could pass 1, which no cosine reaches.
    return round(min(cosine, 1.0), DECIMALS)
