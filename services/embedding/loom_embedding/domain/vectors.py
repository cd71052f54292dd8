"""Arithmetic on vectors and the check that every provider's answer passes."""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from loom_common.errors import LoomError, ProviderFailed
from loom_embedding.domain.embedder import Outcome, Vector

_NUMBERS: Final = frozenset("fiu")
"""Kinds of numpy's types that are numbers."""


class ProviderBusy(ProviderFailed):
    """A provider failed in a way that may pass: the same request may succeed when it is sent again."""


class MalformedEmbedding(ProviderFailed):
    """A provider answered something that is no vector of the model."""


def unit_vector(values: ArrayLike, dim: int) -> Vector:
    """Returns `values` as a vector of unit length.

    Shapes: [dim] in, float32 [dim] out.

    Raises:
        MalformedEmbedding: Another width, a value that is not finite, or no direction.
    """
    try:
        given = np.asarray(values)
    except (OverflowError, TypeError, ValueError):  # rows of different lengths
        given = np.asarray(None)
    if given.dtype.kind not in _NUMBERS:  # numpy would read text and truth values as numbers
        raise MalformedEmbedding("The model answered something that is no row of numbers.", detail={"dim": dim})
    vector = given.astype(np.float64)
    if vector.shape != (dim,):
        raise MalformedEmbedding(
            "The model answered a vector of another width than it declares.",
            detail={"dim": dim, "shape": [int(size) for size in vector.shape]},
        )
    if not np.isfinite(vector).all():
        raise MalformedEmbedding("The model answered a vector with values that are no numbers.", detail={"dim": dim})
    # The largest value first, so that a sum of squares neither overflows nor vanishes.
    largest = float(np.abs(vector).max(initial=0.0))
    if largest == 0.0:
        raise MalformedEmbedding("The model answered a vector without a direction.", detail={"dim": dim})
    vector = vector / largest
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def all_vectors(outcomes: Iterable[Outcome]) -> list[Vector]:
    """Returns the vectors where every text has one.

    Raises:
        LoomError: The first text's that has none.
    """
    vectors = []
    for outcome in outcomes:
        if isinstance(outcome, LoomError):
            raise outcome
        vectors.append(outcome)
    return vectors


def mean_vector(vectors: Sequence[Vector], dim: int) -> Vector:
    """Returns the direction between `vectors`, of unit length; of exactly opposite ones, the first.

    Shapes: n of float32 [dim] in, n at least 1, float32 [dim] out.
    """
    mean = np.mean(np.stack(vectors).astype(np.float64), axis=0)
    return vectors[0] if not mean.any() else unit_vector(mean, dim)
