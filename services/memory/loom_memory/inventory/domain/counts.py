"""What is counted of a namespace."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

BY: Final = (
    "kind",
    "agent",
    "user",
    "actor",
    "tag",
    "key_prefix",
    "age",
    "sensitivity",
    "document_kind",
    "document_language",
)
"""What is counted by, in the order in which it is told."""

AGES: Final = ("1 day", "7 days", "30 days", "90 days", "365 days", "older")
"""Names of the ages of a newest version: no older than what the name says; youngest first."""


@dataclass(frozen=True, slots=True)
class Totals:
    """What one namespace holds in all; times are None where there is no memory."""

    memories: int
    users: int
    sessions: int
    agents: int
    pinned: int
    ended: int
    open_conflicts: int
    documents: int
    document_bytes: int
    first_write_at: datetime | None
    last_write_at: datetime | None


@dataclass(frozen=True, slots=True)
class Names:
    """Counts by one thing.

    Attributes:
        by: One of `BY`.
        counts: Names and counts, most first, equal ones by name; ages youngest first.
        names: Number of names in all.
        total: What all names count together.
    """

    by: str
    counts: tuple[tuple[str, int], ...]
    names: int
    total: int


@dataclass(frozen=True, slots=True)
class Inventory:
    """What one namespace holds."""

    totals: Totals
    groups: tuple[Names, ...]
    read_at: datetime


@dataclass(frozen=True, slots=True)
class Writer:
    """Versions that one writer wrote for one agent: the first of their key, and those that replaced another."""

    actor: str
    agent: str
    new: int
    rewritten: int


@dataclass(frozen=True, slots=True)
class Activity:
    """What happened in a span of time; `shown` is None where reads are not recorded."""

    writers: tuple[Writer, ...]
    shown: int | None
    conflicts_found: int
    conflicts_resolved: int
