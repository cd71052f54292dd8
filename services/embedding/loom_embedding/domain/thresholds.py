"""The gates that a cosine must pass, whichever calibration they come from."""

import hashlib
import json
from dataclasses import asdict, astuple, dataclass
from enum import StrEnum
from typing import Final

DECIMALS: Final = 4
"""Decimals of every gate."""

_HASH_CHARS: Final = 16


class Tier(StrEnum):
    """Where the thresholds in force come from, the most particular first."""

    NAMESPACE = "namespace"
    CLUSTER = "cluster"
    SETTINGS = "settings"
    """No calibration is in force: the settings of the service that searches decide."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Seven cosines. Units: -1 to 1, rounded to 4 decimals, so that storing them changes none."""

    noise_floor: float
    """At or under it two texts are unrelated."""
    abstain: float
    """A search whose best row lies under it answers nothing."""
    query_rewrite: float
    """A search whose best row lies under it tries the query in other words."""
    hyde_fallback: float
    """A search whose best row lies under it looks for what an answer would look like."""
    rerank_skip: float
    """A search whose best row lies above it needs no reranking."""
    conflict: float
    """Two memories at or above it may contradict each other."""
    duplicate: float
    """Two memories at or above it may say the same."""

    def drift(self, other: "Thresholds") -> float:
        """Returns the largest distance between two gates of one name."""
        # Rounded as the gates are: 0.35 - 0.30 is less than 0.05 in binary.
        gates = zip(astuple(self), astuple(other), strict=True)
        return float(max(round(abs(mine - theirs), DECIMALS) for mine, theirs in gates))

    def digest(self, model: str) -> str:
        """Returns a hash that is equal wherever the same gates are served for the same model."""
        text = json.dumps({"model": model, **asdict(self)}, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:_HASH_CHARS]
