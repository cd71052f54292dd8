"""A mark that two memories cannot both hold, and what becomes of it."""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from loom_common.call import Scope
from loom_memory.domain.memory import Identity, Memory


class State(StrEnum):
    """What a mark waits for."""

    OPEN = "open"
    """It waits for somebody's judgement, or the resolver's."""
    RESOLVED = "resolved"
    """It was judged."""
    STALE = "stale"
    """One of the two was deleted or written again before it was."""


class Resolution(StrEnum):
    """How a conflict is settled."""

    KEEP_NEWER = "keep_newer"
    KEEP_OLDER = "keep_older"
    KEEP_BOTH = "keep_both"
    MERGE = "merge"


@dataclass(frozen=True, slots=True)
class Mark:
    """One conflict. It holds no text.

    Attributes:
        scope: Namespace of both memories.
        conflict_id: Its name there; sorts by the time it was found.
        newer: The memory that holds.
        newer_version: Version of that one which this is about.
        older: The memory that ceased to hold.
        older_version: Version of that one which this is about.
        cosine: How near the two are.
        ends_at: When the older one ceased to hold.
        restore_to: Until when it held before; None for ever.
        actor: Who wrote the memory by which it was found.
        created_at: When it was found.
        updated_at: When its state last changed.
        version: Number of this state of it; the highest counts.
        state: What it waits for.
        resolution: How it was settled; empty while it is not.
        resolved_by: Who settled it.
        note: Why.
        attempts: How often the resolver failed on it.
        retry_at: When it may be tried again; None for at once.
    """

    scope: Scope
    conflict_id: str
    newer: Identity
    newer_version: int
    older: Identity
    older_version: int
    cosine: float
    ends_at: datetime
    restore_to: datetime | None
    actor: str
    created_at: datetime
    updated_at: datetime
    version: int
    state: State = State.OPEN
    resolution: str = ""
    resolved_by: str = ""
    note: str = ""
    attempts: int = 0
    retry_at: datetime | None = None

    def became(self, state: State, at: datetime, version: int, **more: object) -> "Mark":
        """Returns the mark in another state; `more` are fields of it."""
        return replace(self, state=state, updated_at=at, version=max(version, self.version + 1), **more)  # type: ignore[arg-type]  # fields


def is_of(mark: Mark, newer: Memory | None, older: Memory | None) -> bool:
    """Says whether both memories still say what a mark is about.

    The older one has a version more once it was ended; nobody else writes it with that end.
    """
    if newer is None or older is None or newer.tombstoned_at is not None or older.tombstoned_at is not None:
        return False
    if newer.version != mark.newer_version:
        return False
    return older.version == mark.older_version or older.invalid_at == mark.ends_at
