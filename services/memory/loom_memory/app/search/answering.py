"""Answers a search as it was asked for: over one namespace or several, in pages, as text, and taken down."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from loom_common.call import Scope
from loom_memory.app.access import actor
from loom_memory.app.search.abstention import PAGE_EXPIRED
from loom_memory.app.search.exposures import Exposures
from loom_memory.app.search.judging import QualityJudge
from loom_memory.app.search.namespaces import NamespaceScope
from loom_memory.app.search.pages import SearchPages
from loom_memory.app.search.query import SearchQuery
from loom_memory.app.search.several import SeveralSearch
from loom_memory.app.search.traces import Traces
from loom_memory.domain.excerpts import Bodies, shown_value
from loom_memory.domain.memory import Hit, Kept, SearchResult
from loom_memory.domain.reader import Paragraph, rendered

_CHARS_PER_TOKEN: Final = 4
"""Source: the usual estimate for English text; what it counts is named as about so many."""


class Render(StrEnum):
    """Form of an answer beside its hits."""

    NONE = ""
    READER = "reader"


@dataclass(frozen=True, slots=True)
class Presentation:
    """How an answer is to look.

    Attributes:
        bodies: How much of each text is shown.
        render: Form beside the hits.
        paging: Whether what stands behind the hits can be read on.
        page: Handle of the page to read; empty for a new search.
    """

    bodies: Bodies = Bodies.FULL
    render: Render = Render.NONE
    paging: bool = False
    page: str = ""


@dataclass(frozen=True, slots=True)
class ShownHit:
    """A hit with as much of its text as is shown."""

    hit: Hit
    text: str
    is_cut: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered; `result` is as the search left it, `hits` as they are shown."""

    result: SearchResult
    hits: Sequence[ShownHit]
    rendered: str = ""
    next_page: str = ""

    @property
    def bodies_returned(self) -> int:
        """Texts that are shown, in whole or in part."""
        return sum(bool(hit.text) for hit in self.hits)

    @property
    def bodies_elided(self) -> int:
        """Texts that are cut short or left out."""
        return sum(hit.is_cut for hit in self.hits)

    @property
    def tokens_returned(self) -> int:
        """About how many tokens the shown texts take."""
        return sum(len(hit.text) + _CHARS_PER_TOKEN - 1 for hit in self.hits) // _CHARS_PER_TOKEN


class Answering:
    """Answers searches."""

    def __init__(
        self, searches: SeveralSearch, pages: SearchPages, exposures: Exposures, traces: Traces, judge: QualityJudge
    ) -> None:
        self._searches = searches
        self._pages = pages
        self._exposures = exposures
        self._traces = traces
        self._judge = judge

    async def answer(
        self,
        scope: Scope,
        query: SearchQuery,
        reach: NamespaceScope,
        look: Presentation,
        request: Callable[[], str] = str,
    ) -> Answer:
        """Returns the answer, and has it taken down.

        Args:
            scope: Namespace that is asked.
            query: What is asked.
            reach: Whether the caller's other namespaces are asked too.
            look: How the answer is to look.
            request: Writes the request as JSON, for it to be asked again one day.

        Raises:
            InvalidArgument: The query is blank, or the page no handle.
            LoomError: The namespaces could not be searched.
        """
        if look.page:
            return await self.page(scope, query, look)
        query = replace(query, wide=query.wide or look.paging or query.facets)
        result = await self._searches.search(scope, query, reach)
        self.expose(result.hits)
        self.take_down(scope, query, result.hits, request)
        next_page = ""
        if look.paging:
            next_page = await self.keep(scope, query, result.kept, len(result.hits))
        return shown(scope, query, look, result, next_page)

    async def page(self, scope: Scope, query: SearchQuery, look: Presentation) -> Answer:
        """Returns a page of a search before, and has it taken down.

        Raises:
            InvalidArgument: It is no handle.
            BackendUnavailable: The store cannot be asked.
        """
        page = await self._pages.page(scope, look.page, query.top_k)
        if page is None:
            return Answer(SearchResult(abstain_code=PAGE_EXPIRED), ())
        result = SearchResult(page.hits, page.candidates_total)
        self.expose(result.hits)
        return shown(scope, query, look, result, page.next_page)

    async def keep(self, scope: Scope, query: SearchQuery, kept: Sequence[Kept], first: int) -> str:
        """Returns the handle of the page that begins with what is kept; `first` matches come before it."""
        return await self._pages.keep(scope, kept, first, query.as_of)

    def expose(self, hits: Sequence[Hit]) -> None:
        """Takes down what is shown. Neither waits nor fails."""
        self._exposures.shown([hit.memory for hit in hits], [hit.score for hit in hits])

    def take_down(self, scope: Scope, query: SearchQuery, hits: Sequence[Hit], request: Callable[[], str]) -> None:
        """Takes down what was asked and found. Neither waits nor fails."""
        self._judge.consider(scope, query.text, hits, actor())
        if self._traces.are_kept:
            self._traces.searched(scope, query.text, query.wanted, request(), hits)


def shown(scope: Scope, query: SearchQuery, look: Presentation, result: SearchResult, next_page: str = "") -> Answer:
    """Returns a result as it is shown."""
    hits = [ShownHit(hit, *shown_value(hit.memory.content, look.bodies, query.text)) for hit in result.hits]
    text = ""
    if look.render is Render.READER:
        text = rendered([paragraph_of(hit, scope.namespace) for hit in hits])
    return Answer(result, hits, text, next_page)


def paragraph_of(hit: ShownHit, home: str) -> Paragraph:
    """Returns a hit as it is read."""
    return Paragraph(hit.hit.memory, hit.text, home, is_low=hit.hit.low, is_cut=hit.is_cut)
