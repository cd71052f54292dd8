"""Of two hits that contradict each other the newer one comes first: an old employer must not hide the present one.

A write ends an older memory that it contradicts where their vectors are near enough for that verdict, which changes
what is stored. Here the words alone decide, and only about the order of what is shown.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from loom_memory.domain.apart import stands_apart
from loom_memory.domain.likeness import Likeness, compare, is_statement
from loom_memory.domain.memory import Hit, Memory

# Source: chosen. Rows that contradict each other are about as good an answer, and so stand close; 15 comparisons take
# about a millisecond.
_LOOKED_AT: Final = 6


def newer_first(hits: Sequence[Hit]) -> list[Hit]:
    """Returns the hits with each one before the first older one that it contradicts; the rest keep their order.

    Both are of one user and agent, and neither is a turn or another kind that stands for itself. A hit that is marked
    low passes none that is not.
    """
    ordered = list(hits)
    for place in range(1, min(len(ordered), _LOOKED_AT)):
        hit = ordered[place]
        for earlier in range(place):
            if _replaces(hit, ordered[earlier]):
                ordered.insert(earlier, ordered.pop(place))
                break
    return ordered


def _replaces(hit: Hit, other: Hit) -> bool:
    new, old = hit.memory, other.memory
    return (
        hit.low <= other.low
        and new.identity.user_id == old.identity.user_id
        and new.content.agent == old.content.agent
        and new.content.speaker == old.content.speaker
        and not (stands_apart(new.content) or stands_apart(old.content))
        and _since(new) > _since(old)
        and is_statement(new.content.value)
        and is_statement(old.content.value)
        and compare(new.content.value, old.content.value) is Likeness.CONFLICT
    )


def _since(memory: Memory) -> datetime:
    return memory.valid_at or memory.content.event_time or memory.updated_at
