"""The legs of a search over everything, each over every namespace that it reads."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from loom_common.auth.directory import Directory
from loom_common.call import Scope, current
from loom_common.together import all_of, both
from loom_memory.app.search.namespaces import ReadNamespaces, reads
from loom_memory.app.search.query import SearchQuery
from loom_memory.app.search.several import NamespaceSearch
from loom_memory.domain.interleaving import interleaved
from loom_memory.domain.memory import Hit, SearchResult
from loom_memory.knowledge.app.agents import agent_of
from loom_memory.knowledge.app.search import KnowledgeHit, KnowledgeQuery, KnowledgeResult
from loom_memory.knowledge.domain.documents import DocumentFilter
from loom_memory.unified.app.ports import (
    Conversations,
    DocumentSearch,
    Profiles,
    Repositories,
    SectionMatch,
    Tracker,
    TurnsFound,
    Verdict,
)

_DECISION = "decision"
# The reason that says most, where namespaces had different ones for having nothing.
_ABSTAINED = ("embedder_changed", "below_floor", "no_match", "empty_namespace")


@dataclass(frozen=True, slots=True)
class OfRepository:
    """What the repository of a checkout answers: decisions, and passages of its documents."""

    decisions: Sequence[Hit] = ()
    passages: Sequence[KnowledgeHit] = ()


class Asking:
    """Asks each plane. A failure is the caller's: nothing here makes one leg's the others'."""

    def __init__(
        self,
        memories: NamespaceSearch,
        documents: DocumentSearch,
        profiles: Profiles,
        conversations: Conversations,
        tracker: Tracker,
        repositories: Repositories,
        directory: Directory,
    ) -> None:
        self._memories = memories
        self._documents = documents
        self._profiles = profiles
        self._conversations = conversations
        self._tracker = tracker
        self._repositories = repositories
        self._directory = directory

    async def memories(self, read: ReadNamespaces, query: SearchQuery) -> list[SearchResult]:
        """Returns what each namespace's memories answer, home first.

        Of the home alone matches beyond the first are wanted: it is what later pages continue.
        """
        home = replace(query, wide=True)
        return await all_of(self._memories.search(each, home if each == read.home else query) for each in read.all)

    async def documents(self, namespaces: Sequence[Scope], query: SearchQuery) -> KnowledgeResult:
        """Returns what documents answer, in one order; rules promoted for another agent are left out."""
        rerank, is_named = self._documents.reranker(None)
        asked = KnowledgeQuery(
            text=query.text,
            wanted=DocumentFilter(tags=query.wanted.tags, agent=agent_of(current().claims)),
            top_k=query.top_k,
            rerank=rerank,
            is_rerank_named=is_named,
        )
        results = await all_of(self._documents.search(each, asked) for each in namespaces)
        hits = interleaved([result.hits for result in results], lambda hit: (hit.ranked.tier, -hit.ranked.score))
        return KnowledgeResult(
            hits=hits,
            candidates=sum(result.candidates for result in results),
            abstained=most_telling([result.abstained for result in results], has_hits=bool(hits)),
            pending=sum(result.pending for result in results),
        )

    async def profiles(
        self, namespaces: Sequence[Scope], query: SearchQuery, min_similarity: float
    ) -> list[SectionMatch]:
        """Returns sections of profiles: those that share words with the query first, each group nearest first."""
        if query.wanted.tags:
            return []  # a section carries none
        found = await all_of(self._profiles.match(each, query.text, query.top_k, min_similarity) for each in namespaces)
        return interleaved(found, lambda match: (not match.by_words, -(match.similarity or 0.0)))[: query.top_k]

    async def conversations(self, namespaces: Sequence[Scope], query: SearchQuery) -> TurnsFound:
        """Returns turns of conversations, over every author, nearest first."""
        if query.wanted.tags:
            return TurnsFound(abstain_code="no_match")  # a turn carries none
        results = await all_of(self._conversations.search(each, query.text, query.top_k) for each in namespaces)
        matches = interleaved([result.matches for result in results], lambda match: (-match.score,))[: query.top_k]
        return TurnsFound(
            matches,
            most_telling([result.abstain_code for result in results], has_hits=bool(matches)),
            sum(result.pending for result in results),
        )

    async def tracker(self, org: str, code_scope: str, text: str) -> Verdict | None:
        """Returns what the tracker of a checkout knows; None where none is indexed."""
        return await self._tracker.duplicate(org, code_scope, text)

    async def repository(self, org: str, code_scope: str, query: SearchQuery) -> OfRepository:
        """Returns what the repository of a checkout answers, where it is indexed and the caller may read it."""
        trunk = await self._repositories.trunk(org, code_scope)
        if trunk is None or not await reads(self._directory, trunk):
            return OfRepository()
        decided = replace(query, wanted=replace(query.wanted, kinds=(_DECISION,)), wide=False)
        found, documents = await both(self._memories.search(trunk, decided), self.documents([trunk], query))
        return OfRepository(found.hits[: query.top_k], documents.hits[: query.top_k])


def most_telling(codes: Sequence[str], *, has_hits: bool) -> str:
    """Returns the reason for having nothing that says most; empty where there is something."""
    return "" if has_hits else next((code for code in _ABSTAINED if code in codes), "")
