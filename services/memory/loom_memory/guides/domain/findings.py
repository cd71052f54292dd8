"""What should be put right in a namespace: the rules, and the words in which they are told.

A finding holds no text of a memory: it names memories, counts them and says in fixed words what they are.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from pydantic import AwareDatetime, BaseModel, ConfigDict

MOST_SUBJECTS: Final = 5
"""Most memories that a finding names."""

STALE_AFTER: Final = timedelta(days=180)
"""Age from which a fact should be looked at again. Source: chosen, the half-life of a fact's recency."""

UNUSED_AFTER: Final = timedelta(days=90)
"""Time in which a memory that was shown to nobody counts as unused. Source: chosen, a quarter."""

LONG_CHARS: Final = 4_000
"""Length from which a memory is a document. Source: chosen, about a thousand tokens, half of a common pack."""

FEWEST_UNNAMED: Final = 20
"""Memories without a key of their own from which it is worth saying. Source: chosen."""


class Kind(StrEnum):
    """What a finding is, the most pressing first."""

    UNRESOLVED_CONFLICTS = "unresolved_conflicts"
    ENDED_PINS = "ended_pins"
    MISSING_VECTORS = "missing_vectors"
    DUPLICATES = "duplicates"
    STALE_FACTS = "stale_facts"
    LONG_MEMORIES = "long_memories"
    NEVER_RECALLED = "never_recalled"
    UNNAMED_KEYS = "unnamed_keys"


class Severity(StrEnum):
    """How pressing a finding is."""

    WARNING = "warning"
    HINT = "hint"


class _Told(NamedTuple):
    severity: Severity
    message: str
    advice: str


_TOLD: Final[Mapping[Kind, _Told]] = MappingProxyType(
    {
        Kind.UNRESOLVED_CONFLICTS: _Told(
            Severity.WARNING,
            "{count} contradictions between memories wait to be resolved.",
            "List them with memory.conflicts and settle each with memory.resolve_conflict.",
        ),
        Kind.ENDED_PINS: _Told(
            Severity.WARNING,
            "{count} pinned memories no longer hold.",
            "Unpin them, or write them anew with memory.set.",
        ),
        Kind.MISSING_VECTORS: _Told(
            Severity.WARNING,
            "{count} memories have no vectors and are found by their words alone.",
            "They come within minutes; where they do not, the calls to the embedding model are off or failing.",
        ),
        Kind.DUPLICATES: _Told(
            Severity.HINT,
            "{count} memories say word for word what another one says.",
            "Keep one of each and remove the others with memory.delete.",
        ),
        Kind.STALE_FACTS: _Told(
            Severity.HINT,
            "{count} facts were last written more than 180 days ago.",
            "Read them with memory.get and confirm what still holds with memory.set, or remove it.",
        ),
        Kind.LONG_MEMORIES: _Told(
            Severity.HINT,
            "{count} memories are longer than 4,000 characters.",
            "Store long texts as documents with knowledge.ingest, or as several memories of one fact each.",
        ),
        Kind.NEVER_RECALLED: _Told(
            Severity.HINT,
            "{count} memories older than 90 days were shown to nobody in that time.",
            "Remove what nobody needs with memory.delete; it makes searches sharper.",
        ),
        Kind.UNNAMED_KEYS: _Told(
            Severity.HINT,
            "{count} memories were written without a key of their own, more than half of all.",
            "Give each fact a key with memory.set, so that its next version replaces it.",
        ),
    }
)


class FindingSubject(BaseModel):
    """Names one memory."""

    model_config = ConfigDict(frozen=True)

    key: str
    user_id: str = ""
    session_id: str = ""


class Found(BaseModel):
    """What a rule found among the memories of one agent."""

    model_config = ConfigDict(frozen=True)

    kind: Kind
    agent: str
    count: int
    subjects: tuple[FindingSubject, ...] = ()


class FindingsSnapshot(BaseModel):
    """What was found at one moment, by rule and agent."""

    model_config = ConfigDict(frozen=True)

    computed_at: AwareDatetime
    found: tuple[Found, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that should be put right.

    Attributes:
        subjects: Some of the memories, each with its agent, the first ones by key.
    """

    kind: Kind
    severity: Severity
    count: int
    message: str
    advice: str
    subjects: tuple[tuple[FindingSubject, str], ...]


def findings_of(found: Iterable[Found], agent: str = "") -> tuple[Finding, ...]:
    """Returns what was found, the most pressing first; about one agent's memories where one is named."""
    of_kind: dict[Kind, list[Found]] = {}
    for each in found:
        if each.count and (not agent or each.agent == agent):
            of_kind.setdefault(each.kind, []).append(each)
    return tuple(_finding(kind, of_kind[kind]) for kind in Kind if kind in of_kind)


def _finding(kind: Kind, found: Sequence[Found]) -> Finding:
    told, count = _TOLD[kind], sum(each.count for each in found)
    named = [(subject, each.agent) for each in found for subject in each.subjects]
    named.sort(key=lambda pair: (pair[0].key, pair[0].user_id, pair[0].session_id))
    return Finding(
        kind, told.severity, count, told.message.format(count=count), told.advice, tuple(named[:MOST_SUBJECTS])
    )
