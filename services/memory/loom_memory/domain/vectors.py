"""Spaces of vectors: only those of one are ever compared."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import Flag, auto
from typing import Final, NamedTuple


class VectorSpace(NamedTuple):
    """A model at one width; the same model at another width is another space."""

    model: str
    dim: int

    @property
    def staged(self) -> str:
        """Name under which vectors of this model are stored before they are shown; no embedder serves it."""
        return f"staged:{self.model}"


class Parts(Flag):
    """What of a memory has vectors: its value, and its key where that says something."""

    VALUES = auto()
    KEYS = auto()
    ALL = VALUES | KEYS


def leaning(one: Sequence[float], other: Sequence[float], share: float) -> list[float]:
    """Returns the direction between two, of unit length, of which `other` has `share`; `one` where there is none.

    Shapes: all float [dim], of unit length.
    """
    total = [(1 - share) * left + share * right for left, right in zip(one, other, strict=True)]
    length = math.sqrt(sum(value * value for value in total))
    return [value / length for value in total] if length > _NO_LENGTH else list(one)


_NO_LENGTH: Final = 1e-6

NEVER: Final = datetime(2299, 1, 1, tzinfo=UTC)
"""When a stub is tried again that nobody should try again; the store's times end with that year."""

_FIRST_RETRY_S: Final = 60.0
_LONGEST_RETRY_S: Final = 86_400.0


def retry_after_s(attempts: int) -> float:
    """Returns how long a text rests after its `attempts`-th failure.

    Source: chosen. What may pass passes within minutes; what does not costs one call a day.
    """
    doublings = min(max(attempts, 1) - 1, 16)
    return min(_FIRST_RETRY_S * 2.0**doublings, _LONGEST_RETRY_S)
