"""What a memory is: its identity, its content, and when it is shown."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from loom_common.call import Scope
from loom_memory.domain.findings import Explanation, Facet
from loom_memory.domain.narrowing import EVERYTHING, Narrowing

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


class Sensitivity(StrEnum):
    """How sensitive a text is, the weakest first."""

    NONE = ""
    PERSONAL = "personal"
    """It holds what identifies or reaches a person, or a number that pays."""
    SECRET = "secret"  # noqa: S105  (a word)
    """It holds what opens something: a key, a token, a password in an address."""

    @property
    def weight(self) -> int:
        """Its place among the others; higher is stronger."""
        return list(Sensitivity).index(self)


@dataclass(frozen=True, slots=True)
class Stated:
    """What a writer says of how a memory holds, beside its content.

    Attributes:
        valid_at: Since when it holds; None where that is not said.
        invalid_at: When it ceased to hold; None while it does.
        attestation: How it is known, in a word of the writer's.
        sensitivity: How sensitive the writer says it is.
        derived_from: Keys of the memories that it was made of.
    """

    valid_at: datetime | None = None
    invalid_at: datetime | None = None
    attestation: str = ""
    sensitivity: str = Sensitivity.NONE.value
    derived_from: tuple[str, ...] = ()


NOTHING_STATED: Final = Stated()


def content_key(content: Content, stated: Stated | None = None) -> str:
    """Returns the key of a memory whose writer gave none: the same for the same content.

    What is stated beside the content is part of it where it is given.

    So a write that is sent again, for a lost answer or by a careless loop, finds what it stored and stores nothing.
    Two things that only look alike, such as two turns of the same words, differ in their time or their session.
    """
    said = {name: value for name, value in asdict(stated or Stated()).items() if value}
    told = json.dumps({**asdict(content), **said}, sort_keys=True, default=datetime.isoformat)
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
        sensitivity: What its writer states or what was found in it, whichever is stronger.
        valid_at: Since when it holds; None where that is not said.
        invalid_at: When it ceased to hold; None while it does.
        attestation: How it is known, in a word of the writer's.
        sensitivity_stated: What its writer states of it.
        sensitivity_found: What was found in it, such as `email_address`, sorted.
        recogniser: Version of the recognisers that looked; empty where none did.
        labels: What the namespace's classifier called it.
        derived_from: Keys of the memories that it was made of.
        request_id: Call that wrote it.
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
    sensitivity_stated: str = ""
    sensitivity_found: tuple[str, ...] = ()
    recogniser: str = ""
    labels: tuple[str, ...] = ()
    derived_from: tuple[str, ...] = ()
    request_id: str = ""

    @property
    def stated(self) -> Stated:
        """What its writer stated beside the content."""
        return Stated(self.valid_at, self.invalid_at, self.attestation, self.sensitivity_stated, self.derived_from)

    def is_visible(self, now: datetime) -> bool:
        """Says whether reads show it: neither deleted nor expired."""
        expires_at = self.content.expires_at
        return self.tombstoned_at is None and (expires_at is None or expires_at > now)

    def tombstone(self, actor: str, version: int, now: datetime) -> "Memory":
        """Returns the row of its deletion: the identity and the revision, and nothing of the content."""
        return Memory(
            self.scope, self.identity, Content(value=""), actor, self.revision, version, self.created_at, now,
            tombstoned_at=now, request_id=self.request_id,
        )  # fmt: skip


class Sketch(NamedTuple):
    """As much of a memory as its place among others depends on.

    Attributes:
        version: Unique number of the write that it is of.
        at: When it happened, or else when its key was first written.
        chars: Length of the value.
        text: The beginning of the value.
        updated_at: When this version was written.
    """

    identity: Identity
    version: int
    speaker: str
    at: datetime
    chars: int
    text: str
    kind: str
    importance: float
    pinned: bool
    valid_at: datetime | None
    invalid_at: datetime | None
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Filter:
    """Which memories of a namespace a read is about; an empty part keeps everything.

    Attributes:
        user_id: Keeps memories of this user, or of none where it is the empty string; None keeps everything.
        session_id: The same of a session.
        kinds: Keeps these kinds.
        tags: Keeps memories that carry any of these.
        more: What else a search may ask for.
    """

    user_id: str | None = None
    session_id: str | None = None
    kinds: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    agent: str = ""
    more: Narrowing = EVERYTHING

    @property
    def is_beyond_identity(self) -> bool:
        """Whether it asks for what only the memory's own row knows."""
        return bool(self.kinds or self.tags or self.agent or self.more)


@dataclass(frozen=True, slots=True)
class Hit:
    """One answer of a search.

    Attributes:
        memory: The memory, whole.
        score: How well it answers, 0 to 1, on one scale in every search mode.
        similarity: Cosine with the query; None when it has no vector or the mode compares none.
        low: Whether the score is low: it may be no answer.
        components: What its place is made of, by name.
    """

    memory: Memory
    score: float
    similarity: float | None
    low: bool
    components: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Kept:
    """A hit behind those that are shown: named, and not read."""

    namespace: str
    identity: Identity
    score: float
    similarity: float | None
    low: bool


def kept_of(hit: Hit) -> Kept:
    """Returns a hit as one that is named and not read."""
    memory = hit.memory
    return Kept(memory.scope.namespace, memory.identity, hit.score, hit.similarity, hit.low)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search found.

    Attributes:
        hits: Best first, each identity once.
        candidates_total: Matches before `top_k` was applied.
        abstain_code: Why there are no hits: `no_match`, `below_floor`, `empty_namespace`, `embedder_changed`; empty
            when there are some.
        pending: Memories without a vector of the served model, which only words find; 0 where none are compared.
        kept: The matches behind the hits, best first.
        withheld: Hits that a floor or a filter of quality kept back.
        facets: Counts over all matches, where they were asked for.
        explanation: How it was searched, where that was asked for.
    """

    hits: list[Hit] = field(default_factory=list)
    candidates_total: int = 0
    abstain_code: str = ""
    pending: int = 0
    kept: tuple[Kept, ...] = ()
    withheld: int = 0
    facets: tuple[Facet, ...] = ()
    explanation: Explanation | None = None
