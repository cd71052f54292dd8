"""Floors and margins of a search over everything, for the embedder that is served.

The numbers that they start from were tuned with one model. A cosine means another thing to each: a floor never lies
under what is noise to the served one, and a margin grows and shrinks with how far apart that model puts what is alike
and what is unrelated. What a setting says outright holds as it is.
"""

from dataclasses import dataclass
from typing import Final

TUNED_SPAN: Final = 0.45
"""Median of paraphrases (0.75) minus noise floor (0.30) of text-embedding-3-small, for which margins were tuned."""

FOREIGN: Final = 0.08
"""What a memory of another namespace needs beyond the floor. Source: the design of the search."""

LEAD: Final = 0.03
"""Similarity within which two hits count as equally near. Source: the design of the search."""

HOME: Final = 0.15
"""Similarity below a fact under which what else the same namespace holds is no answer beside it. Source: as `LEAD`."""

KNOWLEDGE_MIN: Final = 0.30
PROFILE_MIN: Final = 0.38
"""Least similarity of what the two planes answer. Source: the design of the search."""


@dataclass(frozen=True, slots=True)
class Gauge:
    """How the served embedder tells texts apart. Units: cosine.

    Attributes:
        noise_floor: At or under it two texts are unrelated.
        span: How far above it half of all paraphrases lie; None where nothing is calibrated.
    """

    noise_floor: float = 0.0
    span: float | None = None

    @property
    def scale(self) -> float:
        """What margins are multiplied by."""
        return 1.0 if self.span is None else max(self.span, 0.0) / TUNED_SPAN


@dataclass(frozen=True, slots=True)
class Margins:
    """Units: cosine.

    Attributes:
        foreign: What another namespace's memory needs beyond the floor.
        lead: Within it two hits are equally near.
        home: Under a fact by more than it, its own namespace's hits are no answer beside it.
    """

    foreign: float = FOREIGN
    lead: float = LEAD
    home: float = HOME


@dataclass(frozen=True, slots=True)
class Floor:
    """Similarity under which memories are withheld.

    Attributes:
        value: The floor; None where there is none.
        is_derived: Whether it comes from the embedder's calibration and from no setting.
    """

    value: float | None
    is_derived: bool = False


def margins_of(gauge: Gauge, foreign: float | None) -> Margins:
    """Returns the margins for an embedder; `foreign` is a setting's, or None for the derived one."""
    scale = gauge.scale
    return Margins(FOREIGN * scale if foreign is None else foreign, LEAD * scale, HOME * scale)


def floor_of(gauge: Gauge, setting: float) -> Floor:
    """Returns the floor: below 0 the setting asks for the derived one, and 0 is none."""
    if setting < 0:
        return Floor(gauge.noise_floor, is_derived=True)
    return Floor(setting if setting else None)


def least_of(gauge: Gauge, setting: float | None, tuned: float) -> float:
    """Returns the least similarity of a plane: a setting's, else the tuned one and never one that is noise."""
    return max(tuned, gauge.noise_floor) if setting is None else setting
