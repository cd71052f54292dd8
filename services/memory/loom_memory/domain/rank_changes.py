"""How the hits of a search moved between two ways of asking it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from loom_memory.domain.memory import Identity

SAME: Final = "same"
MOVED: Final = "moved"
ENTERED: Final = "entered"
LEFT: Final = "left"


@dataclass(frozen=True, slots=True)
class RankChange:
    """Where one memory stood and stands; places count from 1, and 0 is nowhere."""

    identity: Identity
    before: int
    after: int

    @property
    def kind(self) -> str:
        """`same`, `moved`, `entered` or `left`."""
        if not self.before:
            return ENTERED
        if not self.after:
            return LEFT
        return SAME if self.before == self.after else MOVED


@dataclass(frozen=True, slots=True)
class Difference:
    """How one search's hits moved, by their place after and then before."""

    changes: tuple[RankChange, ...]

    @property
    def overlap(self) -> float:
        """Share of the hits that both have, of the longer list, 0 to 1; 1 where both are empty."""
        before = sum(change.before > 0 for change in self.changes)
        after = sum(change.after > 0 for change in self.changes)
        both = sum(change.before > 0 and change.after > 0 for change in self.changes)
        return both / max(before, after) if before or after else 1.0

    @property
    def is_same(self) -> bool:
        """Whether nothing moved."""
        return all(change.kind == SAME for change in self.changes)

    @property
    def first_changed(self) -> bool:
        """Whether another hit is the first, or there is none any more or for the first time."""
        return any((change.before == 1) != (change.after == 1) for change in self.changes)


def difference(before: Sequence[Identity], after: Sequence[Identity]) -> Difference:
    """Compares two lists of hits, best first, each memory once."""
    stood = {identity: place for place, identity in enumerate(before, 1)}
    stands = {identity: place for place, identity in enumerate(after, 1)}
    changes = [RankChange(identity, stood.get(identity, 0), place) for identity, place in stands.items()]
    changes += [RankChange(identity, place, 0) for identity, place in stood.items() if identity not in stands]
    return Difference(tuple(changes))


@dataclass(slots=True)
class Sums:
    """Sums over searches that were asked both ways."""

    compared: int = 0
    failed: int = 0
    same: int = 0
    first_changed: int = 0
    moved: int = 0
    entered: int = 0
    left: int = 0
    answered: int = 0
    abstained: int = 0
    overlap: float = 0.0

    def add(self, found: Difference) -> None:
        """Counts one search."""
        kinds = [change.kind for change in found.changes]
        had = any(change.before for change in found.changes)
        has = any(change.after for change in found.changes)
        self.compared += 1
        self.same += found.is_same
        self.first_changed += found.first_changed
        self.moved += kinds.count(MOVED)
        self.entered += kinds.count(ENTERED)
        self.left += kinds.count(LEFT)
        self.answered += has and not had
        self.abstained += had and not has
        self.overlap += found.overlap

    @property
    def mean_overlap(self) -> float:
        """Mean of the searches' overlaps; 1 where none was compared."""
        return self.overlap / self.compared if self.compared else 1.0
