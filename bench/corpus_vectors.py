"""Vectors for as many memories as a benchmark asks for, without embedding each.

The first are those of real texts; what comes after lies around them as paraphrases lie around each other. Loom and its
peers make the same from the same file. Only numpy is needed: the peers' environment has no Loom.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]

# Cosine with the text that it is made from, about. Source: paraphrases under the model that Loom ships with.
_NEAR = 0.85


def vectors_of(base: Vectors, first: int, count: int) -> Vectors:
    """Returns the vectors of memories `first` to `first + count`: float32 [count, dim], of unit length."""
    numbers = np.arange(first, first + count)
    vectors: Any = base[numbers % len(base)].astype(np.float32)
    late = numbers >= len(base)
    if late.any():
        noise = np.random.default_rng(first).standard_normal((int(late.sum()), base.shape[1]), dtype=np.float32)
        noise /= np.linalg.norm(noise, axis=1, keepdims=True)
        vectors[late] = _NEAR * vectors[late] + (1 - _NEAR**2) ** 0.5 * noise
    made: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return made


def tenant_of(number: int, tenants: int) -> int:
    """Returns which of `tenants` owns a memory."""
    return number % tenants
