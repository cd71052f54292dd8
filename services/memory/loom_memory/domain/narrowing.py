"""Filters of a search beyond whose memory it is and what kind."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time: from `since`, itself in, until `until`, itself out; None is open."""

    since: datetime | None = None
    until: datetime | None = None

    def __bool__(self) -> bool:
        return self.since is not None or self.until is not None

    def holds(self, moment: datetime) -> bool:
        """Says whether a moment lies in it."""
        return (self.since is None or moment >= self.since) and (self.until is None or moment < self.until)


@dataclass(frozen=True, slots=True)
class Narrowing:
    """What else a memory must be like; an empty part keeps everything.

    Attributes:
        speakers: Keeps what one of these said.
        sources: Keeps what comes from one of these.
        sensitivities: Keeps these marks of sensitivity; the empty string is a memory without one.
        happened: Keeps what happened then; a memory without `event_time` happened when its key was first written.
        updated: Keeps memories whose current version was written then.
        min_importance: Keeps memories of at least this weight.
        pinned: Keeps pinned memories, or those that are not.
    """

    speakers: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    sensitivities: tuple[str, ...] = ()
    happened: Span = Span()
    updated: Span = Span()
    min_importance: float | None = None
    pinned: bool | None = None

    def __bool__(self) -> bool:
        return self != EVERYTHING


EVERYTHING: Final = Narrowing()
"""Keeps all."""
