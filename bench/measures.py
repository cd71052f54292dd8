"""What a ranking is worth, and how times are summed up."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import mean
from typing import Final

import numpy as np

from bench.datasets import Question

CUTS: Final = (5, 10, 20)


def rank_measures(ranking: Sequence[int], question: Question) -> dict[str, float]:
    """Returns recall and hit at 5, 10 and 20, and the reciprocal rank of the first turn that answers.

    Args:
        ranking: Positions of turns, best first; shorter than the longest cut where the search returned less.
        question: The question that was asked.
    """
    places = {turn: place for place, turn in enumerate(ranking)}
    found = [places[turn] for turn in question.evidence if turn in places]
    measures = {"mrr": 1 / (1 + min(found)) if found else 0.0}
    for cut in CUTS:
        within = sum(place < cut for place in found)
        measures[f"recall@{cut}"] = within / len(question.evidence)
        measures[f"hit@{cut}"] = float(within > 0)
    return measures


def averages(rows: Iterable[tuple[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Returns means over all questions (`all`) and by category."""
    groups: dict[str, list[dict[str, float]]] = defaultdict(list)
    for category, measures in rows:
        groups["all"].append(measures)
        groups[category].append(measures)
    return {
        group: {"n": len(members), **{name: round(mean(m[name] for m in members), 4) for name in members[0]}}
        for group, members in groups.items()
    }


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Returns p50, p95 and p99 in milliseconds."""
    ordered = sorted(seconds)
    return {
        f"p{share}_ms": round(1000 * ordered[min(len(ordered) - 1, int(len(ordered) * share / 100))], 2)
        for share in (50, 95, 99)
    }


def auc(positives: Sequence[float], negatives: Sequence[float]) -> float:
    """Returns how often one of `positives` is above one of `negatives`; equal counts half."""
    high, low = np.asarray(positives)[:, None], np.asarray(negatives)[None, :]
    return round(float((high > low).mean() + (high == low).mean() / 2), 4)
