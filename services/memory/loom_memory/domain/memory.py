"""What a memory is: its identity, its content, and when it is shown."""

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from loom_common.call import Scope

# Source: chosen. At a billion memories of one scope two alike are less likely than one in 10^17.
_KEY_BYTES = 15
DEFAULT_KIND = "note"
DEFAULT_IMPORTANCE = 0.5


def to_milliseconds(moment: datetime) -> datetime:
    """Returns a time as precise as the store keeps it."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


class Identity(NamedTuple):
    """Names one memory inside a namespace, in the order in which rows are sorted.

    An absent user or session is the empty string, which is a memory of its own.
    """

    key: str
    user_id: str = ""
    session_id: str = ""


@dataclass(frozen=True, slots=True)
class Content:
    """What a writer says of a memory. Two writes of equal content are one version.

    Times are aware, in UTC, cut to milliseconds: what the store keeps.
    """

    value: str
    kind: str = DEFAULT_KIND
    tags: tuple[str, ...] = ()
    importance: float = DEFAULT_IMPORTANCE
    agent: str = ""
    speaker: str = ""
    source: str = ""
    event_time: datetime | None = None
    expires_at: datetime | None = None
    pinned: bool = False


def content_key(content: Content) -> str:
    """Returns the key of a memory whose writer gave none: the same for the same content.

    So a write that is sent again, for a lost answer or by a careless loop, finds what it stored and stores nothing.
    Two things that only look alike, such as two turns of the same words, differ in their time or their session.
    """
    told = json.dumps(asdict(content), sort_keys=True, default=datetime.isoformat)
    return f"m-{hashlib.blake2b(told.encode(), digest_size=_KEY_BYTES).hexdigest()}"


@dataclass(frozen=True, slots=True)
class Memory:
    """One version of a memory as it is stored.

    Attributes:
        scope: Namespace that holds it.
        identity: Its name there.
        content: What its writer said.
        actor: Who wrote it: `human:` or `process:` and the token's subject.
        revision: 1, 2, 3 and so on; what callers see as the version.
        version: Unique number of the write; the highest of an identity is the current one.
        created_at: When the key was first written, since it was last deleted or expired.
        updated_at: When this version was written.
        tombstoned_at: When it was deleted; None while it is not.
    """

    scope: Scope
    identity: Identity
    content: Content
    actor: str
    revision: int
    version: int
    created_at: datetime
    updated_at: datetime
    tombstoned_at: datetime | None = None
    sensitivity: str = ""
    valid_at: datetime | None = None
    invalid_at: datetime | None = None
    attestation: str = ""

    def is_visible(self, now: datetime) -> bool:
        """Says whether reads show it: neither deleted nor expired."""
        expires_at = self.content.expires_at
        return self.tombstoned_at is None and (expires_at is None or expires_at > now)

    def tombstone(self, actor: str, version: int, now: datetime) -> "Memory":
        """Returns the row of its deletion: the identity and the revision, and nothing of the content."""
        return replace(self, content=Content(value=""), actor=actor, version=version, updated_at=now, tombstoned_at=now)


class Sketch(NamedTuple):
    """As much of a memory as its place among others depends on.

    Attributes:
        version: Unique number of the write that it is of.
        at: When it happened, or else when its key was first written.
        chars: Length of the value.
        text: The beginning of the value.
    """

    identity: Identity
    version: int
    speaker: str
    at: datetime
    chars: int
    text: str


@dataclass(frozen=True, slots=True)
class Filter:
    """Which memories of a namespace a read is about; an empty part keeps everything.

    Attributes:
        user_id: Keeps memories of this user, or of none where it is the empty string; None keeps everything.
        session_id: The same of a session.
        kinds: Keeps these kinds.
        tags: Keeps memories that carry any of these.
    """

    user_id: str | None = None
    session_id: str | None = None
    kinds: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    agent: str = ""

    @property
    def is_beyond_identity(self) -> bool:
        """Whether it asks for what only the memory's own row knows."""
        return bool(self.kinds or self.tags or self.agent)


@dataclass(frozen=True, slots=True)
class Hit:
    """One answer of a search.

    Attributes:
        memory: The memory, whole.
        score: How well it answers, 0 to 1, on one scale in every search mode.
        similarity: Cosine with the query; None when it has no vector or the mode compares none.
        low: Whether the score is low: it may be no answer.
    """

    memory: Memory
    score: float
    similarity: float | None
    low: bool


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search found.

    Attributes:
        hits: Best first, each identity once.
        candidates_total: Matches before `top_k` was applied.
        abstain_code: Why there are no hits: `no_match`, `below_floor`, `empty_namespace`, `embedder_changed`; empty
            when there are some.
        pending: Memories without a vector of the served model, which only words find; 0 where none are compared.
    """

    hits: list[Hit] = field(default_factory=list)
    candidates_total: int = 0
    abstain_code: str = ""
    pending: int = 0
