"""What moves a hit beside what its text says: its times, its use, and what its writer thought of it.

Each is small beside the evidence of the legs (a cosine or a share of words of .1 moves a hit by .05), so that it
decides between hits that answer about equally well, and never lifts what does not answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from loom_memory.domain.recipes import Weights

RECENCY: Final = 0.03
"""What a memory of this moment gains. Source: chosen; two wordings of one fact differ by less in their evidence."""

HALF_LIFE: Final[Mapping[str, timedelta]] = {
    "task": timedelta(days=14),
    "event": timedelta(days=60),
    "note": timedelta(days=90),
    "chunk": timedelta(days=365),
    "fact": timedelta(days=180),
    "preference": timedelta(days=365),
}
"""Time in which half of a kind's recency is gone. A decision and a constraint hold until another replaces them.

Source: chosen: a task is done or dead within weeks, a preference outlives a year."""

DEFAULT_HALF_LIFE: Final = timedelta(days=180)
_HALF_LIFE_S: Final = {kind: life.total_seconds() for kind, life in HALF_LIFE.items()}
_DEFAULT_HALF_LIFE_S: Final = DEFAULT_HALF_LIFE.total_seconds()
_LATEST: Final = 3.0
_DEFAULT_IMPORTANCE: Final = 0.5
LASTING: Final = frozenset({"decision", "constraint"})

REINFORCEMENT: Final = 0.03
"""What a memory gains that was said again or found useful often; half of it at `_HALF_USES`."""

_HALF_USES: Final = 4.0

IMPORTANCE: Final = 0.08
"""What the whole way from importance 0 to 1 is worth; 0.5, the default, moves nothing."""

PIN: Final = 0.05
TIME: Final = 0.1
"""What lying in a time that the question names is worth. Source: as `ranking.CUE`."""

ENTITY: Final = 0.12
"""What being about a thing that the question names is worth at full strength."""

KEY: Final = 1.0
"""Lifts the memory whose key was asked for over everything else. Source: as `ranking.EXACT`."""

TAG: Final = 0.2

SUPERSEDED: Final = 0.4
"""What a memory loses whose validity has ended, where such are shown: it comes after what holds."""

NAMED_SCORE: Final = 0.3
"""Least score of a hit that the question names: by its key, its tag, a thing it is about, or nothing but its time.

Source: chosen; just above `scoring.MATCH`, so that it counts as an answer and never outshines evidence."""


@dataclass(frozen=True, slots=True)
class Use:
    """How a memory was used, counted by what happened to it.

    Attributes:
        reinforced: Times the same was said again.
        recalled: Times a search showed it among its first.
        helpful: Marks as useful minus marks as wrong.
    """

    reinforced: int = 0
    recalled: int = 0
    helpful: int = 0


NO_USE: Final = Use()

# A recall is weak evidence: a search shows what it found, whether or not it helped.
_RECALL_SHARE: Final = 0.1


class Facts(NamedTuple):
    """What the signals of one memory depend on.

    Attributes:
        at: When it happened, or was first written.
        said: Whether it is a turn of a conversation, which no later turn makes less true.
        in_time: Whether it lies in a time that the question names.
        entity: How surely it is about a thing that the question names, 0 to 1.
        has_key: Whether the question names its key.
        has_tag: Whether the question names a tag of it.
    """

    kind: str
    at: datetime
    importance: float
    pinned: bool
    invalid_at: datetime | None
    said: bool
    use: Use = NO_USE
    in_time: bool = False
    entity: float = 0.0
    has_key: bool = False
    has_tag: bool = False


def has_ended(invalid_at: datetime | None, now: datetime) -> bool:
    """Says whether something else holds by now. What is yet to hold is no less worth knowing."""
    return invalid_at is not None and invalid_at <= now


def signals(facts: Facts, weights: Weights, now: datetime, *, asks_latest: bool = False) -> dict[str, float]:
    """Returns what each signal adds to a hit's order, by name; those that add nothing are left out."""
    found: dict[str, float] = {}
    if facts.has_key:
        found["key"] = weights.exact * KEY
    if facts.has_tag:
        found["tag"] = weights.exact * TAG
    if facts.in_time:
        found["time"] = weights.time * TIME
    if facts.entity:
        found["entity"] = weights.entity * ENTITY * facts.entity
    if facts.kind not in LASTING and (asks_latest or not facts.said):
        found["recency"] = weights.recency * _recency(facts, now) * (_LATEST if asks_latest else 1.0)
    if facts.use is not NO_USE:
        found["reinforcement"] = weights.reinforcement * _reinforcement(facts.use)
    if facts.importance != _DEFAULT_IMPORTANCE:
        found["importance"] = weights.importance * IMPORTANCE * (facts.importance - _DEFAULT_IMPORTANCE)
    if facts.pinned:
        found["pin"] = weights.pin * PIN
    if facts.invalid_at is not None and has_ended(facts.invalid_at, now):
        found["validity"] = -SUPERSEDED
    return {name: value for name, value in found.items() if value}


def _recency(facts: Facts, now: datetime) -> float:
    age_s = max((now - facts.at).total_seconds(), 0.0)
    # To the second: of memories written together none is the newer by what the clock of a search adds.
    return float(RECENCY * 0.5 ** (age_s // 1 / _HALF_LIFE_S.get(facts.kind, _DEFAULT_HALF_LIFE_S)))


def _reinforcement(use: Use) -> float:
    """Returns -`REINFORCEMENT` to `REINFORCEMENT`, steep at first: the tenth time says little beside the first."""
    worth = use.reinforced + _RECALL_SHARE * use.recalled + 2.0 * use.helpful
    return REINFORCEMENT * worth / (abs(worth) + _HALF_USES)
