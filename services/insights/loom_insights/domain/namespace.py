"""What is told of a namespace: its inventory, what happened in it, and what should be put right."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

Severity = Literal["warning", "hint"]


@dataclass(frozen=True, slots=True)
class Totals:
    """What a namespace holds in all; times are empty where there is no memory."""

    memories: int = 0
    users: int = 0
    sessions: int = 0
    agents: int = 0
    pinned: int = 0
    ended: int = 0
    open_conflicts: int = 0
    documents: int = 0
    document_bytes: float = 0.0
    first_write_at: str = ""
    last_write_at: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Counts by one thing.

    Attributes:
        by: What is counted by.
        counts: Names and counts, most first.
        names: Number of names in all.
        total: What all names count together.
    """

    by: str
    counts: tuple[tuple[str, int], ...]
    names: int
    total: int

    @property
    def other(self) -> int:
        """What the names count that are not among `counts`."""
        return self.total - sum(count for _, count in self.counts)


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a namespace holds; `read_at` is RFC 3339."""

    totals: Totals
    groups: tuple[Group, ...] = ()
    read_at: str = ""

    def group(self, by: str) -> Group:
        """Returns the counts by one thing; empty ones where there are none."""
        return next((group for group in self.groups if group.by == by), Group(by, (), 0, 0))


@dataclass(frozen=True, slots=True)
class Writer:
    """Versions that one writer wrote for one agent."""

    actor: str
    agent: str
    new: int
    rewritten: int


@dataclass(frozen=True, slots=True)
class Activity:
    """What memory knows of a span of time; `shown` is None where reads are not recorded."""

    writers: tuple[Writer, ...] = ()
    shown: int | None = None
    conflicts_found: int = 0
    conflicts_resolved: int = 0


@dataclass(frozen=True, slots=True)
class Subject:
    """One memory that a finding is about."""

    key: str
    user_id: str = ""
    session_id: str = ""
    agent: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that should be put right, in memory's words."""

    kind: str
    severity: Severity
    count: int
    message: str
    advice: str
    subjects: tuple[Subject, ...] = ()


@dataclass(frozen=True, slots=True)
class Findings:
    """What should be put right; `computed_at` is empty where it never was looked for, `enabled` whether it ever is."""

    findings: tuple[Finding, ...] = ()
    computed_at: str = ""
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class Guide:
    """The namespace's guide; `version` is 0 where there is none, `current` the newest that ever was."""

    text: str = ""
    version: int = 0
    current: int = 0


@dataclass(frozen=True, slots=True)
class Caller:
    """What one caller asked."""

    subject: str
    calls: int
    errors: int
    cost_usd: float


@dataclass(frozen=True, slots=True)
class Failure:
    """How often one operation failed in one way."""

    op: str
    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class Searches:
    """Searches that ended well, and those of them that found nothing."""

    count: int = 0
    empty: int = 0


@dataclass(frozen=True, slots=True)
class Spent:
    """What a span of time saw and cost."""

    calls: int
    errors: int
    cost_usd: float


@dataclass(frozen=True, slots=True)
class Summary:
    """A namespace in one look."""

    inventory: Inventory
    guide: Guide
    findings: Findings
    week: Spent


@dataclass(frozen=True, slots=True)
class Audit:
    """What happened in a span of time."""

    since: datetime
    until: datetime
    activity: Activity
    callers: Sequence[Caller]
    failures: Sequence[Failure]
    searches: Searches
    findings: Findings


@dataclass(frozen=True, slots=True)
class Draft:
    """One change that a person may make.

    Attributes:
        kind: What it is.
        severity: How pressing it is.
        reason: What it rests on.
        change: What it would change.
        op: Operation to call; empty where there is none.
        arguments: Arguments of the call.
    """

    kind: str
    severity: Severity
    reason: str
    change: str
    op: str = ""
    arguments: Mapping[str, str | int] = field(default_factory=dict)
