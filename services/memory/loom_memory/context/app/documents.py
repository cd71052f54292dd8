"""The section of a pack that shows documents."""

from collections.abc import Mapping, Sequence
from typing import Final

from loom_common.call import Scope
from loom_common.document_citations import DocumentCitation
from loom_memory.context.app.ports import Wanted
from loom_memory.context.domain.entries import Entry
from loom_memory.context.domain.sections import Section
from loom_memory.knowledge.app.search import KnowledgeQuery, KnowledgeSearch
from loom_memory.knowledge.domain.documents import DocumentFilter

# Source: chosen; passages are long, and the section holds a handful.
_TOP_K: Final = 8


class RecalledDocuments:
    """Passages that answer the question, each behind its citation, without noise and without other agents' rules."""

    sections = (Section.KNOWLEDGE,)

    def __init__(self, search: KnowledgeSearch) -> None:
        self._search = search

    async def read(self, scope: Scope, wanted: Wanted) -> Mapping[Section, Sequence[Entry]]:
        """See `Source.read`."""
        if not wanted.query:
            return {}
        query = KnowledgeQuery(wanted.query, DocumentFilter(agent=wanted.agent), _TOP_K)
        result = await self._search.search(scope, query)
        entries = [
            Entry(
                f"{hit.document.source_uri}#{hit.section.anchor}",
                f"{DocumentCitation(hit.document.source_uri, hit.section.breadcrumb)}\n{hit.chunk.text}",
                hit.ranked.score,
            )
            for hit in result.hits
            if not hit.section.noise
        ]
        return {Section.KNOWLEDGE: entries}
