"""What a search over everything is asked, and what it answers."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from loom_common.call import Scope
from loom_memory.app.search.answering import Answer, Presentation, ShownHit
from loom_memory.app.search.namespaces import NamespaceScope
from loom_memory.app.search.query import SearchQuery
from loom_memory.domain.memory import SearchResult
from loom_memory.knowledge.app.search import KnowledgeHit
from loom_memory.unified.app.ports import SectionMatch, TurnMatch, Verdict
from loom_memory.unified.domain.withholding import Rule


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked.

    Attributes:
        scope: Namespace that the call was authorized for.
        is_named: Whether the caller named it.
        query: What memories are asked; the planes beside are asked for its text, tags and number of hits.
        reach: Whether the caller's other namespaces are read too.
        look: How the answer is to look.
        code_scope: Checkout that the caller works in; empty for none.
        request: Writes the request as JSON, for it to be asked again one day.
    """

    scope: Scope
    query: SearchQuery
    look: Presentation
    is_named: bool = True
    reach: NamespaceScope = NamespaceScope.ALL_MINE
    code_scope: str = ""
    request: Callable[[], str] = str


@dataclass(frozen=True, slots=True)
class MemorySide:
    """What memories answer.

    Attributes:
        answer: The result, its handle of a further page, and its hits without a repository's decisions.
        hits: Those hits and the decisions in their order.
        rendered: The hits as a text.
        whys: Why each of `hits` is there, where that was asked for.
        error: Why memories could not be read; empty when they could.
    """

    answer: Answer = field(default_factory=lambda: Answer(SearchResult(), ()))
    hits: Sequence[ShownHit] = ()
    rendered: str = ""
    whys: Sequence[str] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class ShownPassage:
    """A passage of a document with as much of its text as is shown."""

    hit: KnowledgeHit
    text: str
    is_cut: bool


@dataclass(frozen=True, slots=True)
class KnowledgeSide:
    """What documents answer."""

    hits: Sequence[ShownPassage] = ()
    abstain_code: str = ""
    pending: int = 0
    rendered: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class ProfileSide:
    """What profiles answer."""

    hits: Sequence[SectionMatch] = ()
    rendered: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class ShownTurn:
    """A turn with as much of its text as is shown."""

    match: TurnMatch
    text: str
    is_cut: bool


@dataclass(frozen=True, slots=True)
class ConversationsSide:
    """What conversations answer."""

    hits: Sequence[ShownTurn] = ()
    abstain_code: str = ""
    pending: int = 0
    rendered: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class TrackerSide:
    """What a tracker answers."""

    verdict: Verdict | None = None
    rendered: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """One answer; a side that was not asked is None."""

    home: Scope
    memory: MemorySide
    knowledge: KnowledgeSide | None = None
    profile: ProfileSide | None = None
    conversations: ConversationsSide | None = None
    tracker: TrackerSide | None = None
    withheld: Counter[Rule] = field(default_factory=Counter)
    repository_error: str = ""
