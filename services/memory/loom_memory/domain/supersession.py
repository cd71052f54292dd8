"""When each of two memories holds that cannot both hold: the newer from its time on, the older until then."""

from dataclasses import dataclass, replace
from datetime import datetime

from loom_memory.domain.memory import Content, Memory, Stated


@dataclass(frozen=True, slots=True)
class Window:
    """When a memory holds: from `since`, itself in, until `until`, itself out; None is open."""

    since: datetime
    until: datetime | None = None

    def overlaps(self, other: "Window") -> bool:
        """Says whether both hold at some moment."""
        return (self.until is None or other.since < self.until) and (other.until is None or self.since < other.until)


@dataclass(frozen=True, slots=True)
class Ending:
    """Which of two memories ceases to hold, and when.

    Attributes:
        ends_new: Whether it is the one that is written now.
        at: When the other begins to hold.
    """

    ends_new: bool
    at: datetime


def since(content: Content, stated: Stated, written_at: datetime) -> datetime:
    """Returns since when a memory holds: when it happened, else what its writer states, else when it was written."""
    return content.event_time or stated.valid_at or written_at


def window_of(memory: Memory) -> Window:
    """Returns when a stored memory holds."""
    return Window(since(memory.content, memory.stated, memory.updated_at), memory.invalid_at)


def ending(new: Window, old: Window) -> Ending | None:
    """Returns which of two that contradict each other ceases to hold; None where their times do not meet.

    Of two that begin at the same moment the one that is written now holds.
    """
    if not new.overlaps(old):
        return None
    return Ending(False, new.since) if new.since >= old.since else Ending(True, old.since)


def holding_until(content: Content, stated: Stated, written_at: datetime, at: datetime) -> Stated:
    """Returns what is stated of a memory that holds until `at`: both ends of its time, whatever is written later."""
    begins = None if content.event_time is not None else since(content, stated, written_at)
    return replace(stated, valid_at=stated.valid_at or begins, invalid_at=at)


def ended(memory: Memory, at: datetime) -> Stated:
    """Returns what is stated of a stored memory that holds until `at`."""
    return holding_until(memory.content, memory.stated, memory.updated_at, at)
