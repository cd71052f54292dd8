"""The gates of conflicts and duplicates that calibration gives each local model at hand, against pairs with labels.

Two things are measured: the cosines alone (`gates.tsv`), and the verdicts of a write, which need the cosine and the
words (`verdicts.tsv`). The latter has pairs that were at hand when the rules of the words were written, and pairs that
were written afterwards and never used for them (`held_out`); half of all are near misses, which must stay two memories.

The pairs are this repository's own (`bench/data/gates.tsv`) and none of them is one that thresholds are measured with.
`duplicate`: both say the same. `conflict`: both speak of the same thing and cannot both hold. `related`: other facts
about the same thing. `unrelated`: nothing in common.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench import results
from loom_common.settings import SettingsError
from loom_embedding.app.probe import Probe
from loom_embedding.domain.calibration import Pair, Thresholds, cosines_of, derive_thresholds, percentile, texts_of
from loom_embedding.domain.models import LOCAL_MODELS
from loom_embedding.model import OpenModel, open_model
from loom_embedding.settings import EmbeddingSettings
from loom_memory.domain.likeness import compare

DATA: Final = Path(__file__).parent / "data" / "gates.tsv"
VERDICTS: Final = DATA.with_name("verdicts.tsv")
SPLITS: Final = ("seen", "held_out")
LABELS: Final = ("duplicate", "conflict", "related", "unrelated")
# A cosine alone cannot tell a contradiction from a repetition, so the gate of conflicts should let both pass.
_ABOUT_THE_SAME: Final = frozenset({"duplicate", "conflict"})


class Labelled(NamedTuple):
    """One pair and what it is."""

    label: str
    pair: Pair


class Judged(NamedTuple):
    """One pair that a write may meet, the second told later; `apart` = two memories that hold side by side."""

    split: str
    label: str
    language: str
    register: str
    pair: Pair


def judged_pairs() -> list[Judged]:
    """Returns the pairs of the verdicts."""
    rows = [line.split("\t") for line in VERDICTS.read_text("utf-8").splitlines()[1:]]
    return [Judged(split, label, language, register, Pair(*texts)) for split, label, language, register, *texts in rows]


def labelled_pairs() -> list[Labelled]:
    """Returns the pairs with their labels."""
    rows = [line.split("\t") for line in DATA.read_text("utf-8").splitlines()[1:]]
    return [Labelled(label, Pair(one, other)) for label, one, other in rows]


def run() -> None:
    """Measures every local model whose files are here, and saves the figures."""
    figures = {}
    for model in LOCAL_MODELS:
        try:
            figures[model] = asyncio.run(_measured(model))
        except SettingsError as error:
            print(f"gates: {model} left out: {error}")
    results.save("gates", {"pairs": len(labelled_pairs()), "models": figures})


async def _measured(model: str) -> dict[str, Any]:
    async with open_model(EmbeddingSettings(LOOM_EMBEDDING_MODEL=model)) as opened:
        began = time.perf_counter()
        quantiles = await Probe(opened.embedder).cluster()
        probe_s = time.perf_counter() - began
        thresholds = derive_thresholds(quantiles)
        cosines = await _cosines(opened)
        verdicts = await _verdicts(opened, thresholds)
    return {
        "probe_s": round(probe_s, 2),
        "quantiles": {name: round(value, 4) for name, value in asdict(quantiles).items()},
        "thresholds": asdict(thresholds),
        "cosines": {
            label: [round(percentile(cosines[label], percent), 3) for percent in (5, 50, 95)] for label in LABELS
        },
        "duplicate": _gate(cosines, thresholds.duplicate, frozenset({"duplicate"})),
        "conflict": _gate(cosines, thresholds.conflict, _ABOUT_THE_SAME),
        "conflicts_found": round(_share(cosines["conflict"], thresholds.conflict), 3),
        "verdicts": verdicts,
    }


async def _verdicts(opened: OpenModel, thresholds: Thresholds) -> dict[str, Any]:
    """Returns precision and recall of the verdicts by split: of the whole rule, and of the cosine without words."""
    pairs = judged_pairs()
    texts = texts_of([each.pair for each in pairs])
    vectors = dict(zip(texts, await opened.embedder.embed_many(texts), strict=True))
    found: dict[str, Any] = {}
    for split in SPLITS:
        some = [each for each in pairs if each.split == split]
        near = cosines_of([each.pair for each in some], vectors)
        figures: dict[str, Any] = {"pairs": len(some), "near_misses": sum(each.label == "apart" for each in some)}
        for label, gate in (("duplicate", thresholds.duplicate), ("conflict", thresholds.conflict)):
            wanted = [each.label == label for each in some]
            passed = [cosine >= gate for cosine in near]
            by_words = [compare(each.pair.other, each.pair.one) == label for each in some]
            both = [one and other for one, other in zip(passed, by_words, strict=True)]
            figures[label] = {"gate": gate, "cosine_alone": _rates(passed, wanted), "with_words": _rates(both, wanted)}
        found[split] = figures
    return found


def _rates(given: Sequence[bool], wanted: Sequence[bool]) -> dict[str, float]:
    right = sum(one and other for one, other in zip(given, wanted, strict=True))
    return {
        "given": sum(given),
        "precision": round(right / sum(given), 3) if any(given) else 1.0,
        "recall": round(right / sum(wanted), 3),
    }


async def _cosines(opened: OpenModel) -> dict[str, list[float]]:
    pairs = labelled_pairs()
    texts = texts_of([each.pair for each in pairs])
    vectors = dict(zip(texts, await opened.embedder.embed_many(texts), strict=True))
    return {label: cosines_of([each.pair for each in pairs if each.label == label], vectors) for label in LABELS}


def _gate(cosines: dict[str, list[float]], gate: float, wanted: frozenset[str]) -> dict[str, float]:
    right = sum(value >= gate for label in wanted for value in cosines[label])
    passed = sum(value >= gate for values in cosines.values() for value in values)
    total = sum(len(cosines[label]) for label in wanted)
    return {
        "gate": gate,
        "precision": round(right / passed, 3) if passed else 0.0,
        "recall": round(right / total, 3),
    }


def _share(values: Sequence[float], gate: float) -> float:
    return sum(value >= gate for value in values) / len(values)
