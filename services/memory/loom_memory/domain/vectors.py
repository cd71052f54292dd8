"""Spaces of vectors: only those of one are ever compared."""

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
