"""Reads the pairs that this build measures a model with."""

import functools
from importlib import resources
from typing import Final

from loom_embedding.domain.calibration import Corpora, Pair

_PACKAGE: Final = "loom_embedding.corpora"
_COLUMNS: Final = 4


@functools.cache
def built_in_corpora() -> Corpora:
    """Returns the three corpora of this build."""
    return Corpora(_pairs("paraphrases"), _pairs("questions"), _pairs("distractors"))


def _pairs(name: str) -> tuple[Pair, ...]:
    text = resources.files(_PACKAGE).joinpath(f"{name}.tsv").read_text("utf-8")
    rows = [line.split("\t") for line in text.splitlines()[1:]]
    if any(len(row) != _COLUMNS for row in rows):
        raise ValueError(f"a line of {name}.tsv has not {_COLUMNS} columns")
    return tuple(Pair(one, other) for _, _, one, other in rows)
