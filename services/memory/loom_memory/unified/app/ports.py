"""What a search over everything asks beside memories."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from loom_common.call import Scope
from loom_memory.knowledge.app.search import KnowledgeQuery, KnowledgeResult


class DocumentSearch(Protocol):
    """Searches the documents of a namespace; `KnowledgeSearch` says how."""

    def reranker(self, asked: str | None) -> tuple[str, bool]:
        """Returns the reranker of a request, and whether the request named it itself."""
        ...

    async def search(self, scope: Scope, query: KnowledgeQuery) -> KnowledgeResult:
        """Returns what answers the query, best first."""
        ...


@dataclass(frozen=True, slots=True)
class TurnMatch:
    """A turn of a conversation that answers.

    Attributes:
        at: When it was said.
        similarity: Cosine with the query; None where it is not known.
    """

    scope: Scope
    conversation_id: str
    title: str
    turn_id: str
    turn_index: int
    author: str
    role: str
    text: str
    at: datetime | None
    score: float
    similarity: float | None


@dataclass(frozen=True, slots=True)
class TurnsFound:
    """What conversations answer.

    Attributes:
        abstain_code: Why there is nothing; empty where there is something.
        pending: Turns without a vector of the served model.
    """

    matches: Sequence[TurnMatch] = ()
    abstain_code: str = ""
    pending: int = 0


class Conversations(Protocol):
    """Searches the conversations of a namespace, over every author."""

    async def search(self, scope: Scope, text: str, top_k: int) -> TurnsFound:
        """Returns turns that the running call may read, nearest first, none below the plane's own floor."""
        ...


@dataclass(frozen=True, slots=True)
class SectionMatch:
    """A section of a profile that answers.

    Attributes:
        similarity: Cosine of the query with label and value; None where only words were compared.
        by_words: Whether words of the query stand in it.
    """

    scope: Scope
    label: str
    value: str
    user_id: str
    agent: str
    updated_at: datetime | None
    version: int
    similarity: float | None
    by_words: bool


class Profiles(Protocol):
    """Matches the profile sections of a namespace, by words and then by meaning."""

    async def match(self, scope: Scope, text: str, top_k: int, min_similarity: float) -> Sequence[SectionMatch]:
        """Returns sections that the running call may read, best first.

        Args:
            scope: Namespace.
            text: The query.
            top_k: Most sections.
            min_similarity: Cosine from which a section answers without a word of the query.
        """
        ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a tracker knows of a defect that a query describes.

    Attributes:
        verdict: `duplicate`, `related` or `new`.
        reference: Name of the report, such as `LOOM-12`; empty for a new one.
        title: Its title.
        url: Where it stands.
        status: Its state in the tracker's own word.
    """

    verdict: str
    reference: str = ""
    title: str = ""
    url: str = ""
    status: str = ""


class Tracker(Protocol):
    """Knows what was reported of a checkout."""

    async def duplicate(self, org: str, code_scope: str, text: str) -> Verdict | None:
        """Returns what is known of a defect; None where no tracker of the checkout is indexed."""
        ...


class Repositories(Protocol):
    """Knows which namespace holds a checkout's repository."""

    async def trunk(self, org: str, code_scope: str) -> Scope | None:
        """Returns the namespace of the repository's trunk; None where it is not indexed."""
        ...


class NoTracker:
    """A `Tracker` of a deployment that indexes none."""

    async def duplicate(self, org: str, code_scope: str, text: str) -> Verdict | None:
        """See `Tracker.duplicate`: not indexed."""
        return None


class NoRepositories:
    """`Repositories` of a deployment that indexes none."""

    async def trunk(self, org: str, code_scope: str) -> Scope | None:
        """See `Repositories.trunk`: not indexed."""
        return None


@dataclass
class FakeConversations:
    """Answers what it is given, for tests."""

    found: dict[Scope, TurnsFound] = field(default_factory=dict)

    async def search(self, scope: Scope, text: str, top_k: int) -> TurnsFound:
        """See `Conversations.search`."""
        return self.found.get(scope, TurnsFound(abstain_code="empty_namespace"))


@dataclass
class FakeProfiles:
    """Answers what it is given, for tests."""

    found: dict[Scope, Sequence[SectionMatch]] = field(default_factory=dict)

    async def match(self, scope: Scope, text: str, top_k: int, min_similarity: float) -> Sequence[SectionMatch]:
        """See `Profiles.match`."""
        kept = [each for each in self.found.get(scope, ()) if each.by_words or (each.similarity or 0) >= min_similarity]
        return kept[:top_k]


@dataclass
class FakeTracker:
    """Answers what it is given, for tests."""

    verdict: Verdict | None = None

    async def duplicate(self, org: str, code_scope: str, text: str) -> Verdict | None:
        """See `Tracker.duplicate`."""
        return self.verdict


@dataclass
class FakeRepositories:
    """Answers what it is given, for tests."""

    trunks: dict[str, Scope] = field(default_factory=dict)

    async def trunk(self, org: str, code_scope: str) -> Scope | None:
        """See `Repositories.trunk`."""
        return self.trunks.get(code_scope)
