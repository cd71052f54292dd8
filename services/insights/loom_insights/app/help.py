"""Answering how Loom works from its own documentation."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from loom_insights.app.help_index import HelpHit, HelpIndex
from loom_insights.domain.documentation import Audience, Page, Section

MOST_CHARS: Final = 16_000
"""Most characters of one read."""

MOST_OUTLINE: Final = 300
"""Most sections of an outline."""

WRITING_GUIDE: Final = "user/writing.md"
"""Page that is the guide to writing memories."""


@dataclass(frozen=True, slots=True)
class HelpRead:
    """What was read of a page.

    Attributes:
        page: The page.
        section: The section; None for a whole page.
        text: Text from the offset on.
        total: Length of the whole page or section, in characters.
        next_offset: Where the rest begins; None where there is none.
        outline: Sections of the page, where they are told.
    """

    page: Page
    section: Section | None
    text: str
    total: int
    next_offset: int | None
    outline: tuple[Section, ...]


class Help:
    """Reads the documentation that the build ships; its index is built at the first call, in a thread of its own.

    Args:
        pages: Reads every page; none where the build has no documentation.
    """

    def __init__(self, pages: Callable[[], Sequence[Page]]) -> None:
        self._pages = pages
        self._building: asyncio.Task[HelpIndex | None] | None = None

    async def search(self, query: str, top_k: int, audience: Audience | None) -> list[HelpHit] | None:
        """Returns the sections that answer best, best first; None where there is no documentation."""
        index = await self._index()
        return None if index is None else await asyncio.to_thread(index.search, query, top_k, audience)

    async def available(self) -> bool:
        """Tells whether this build has its documentation."""
        return await self._index() is not None

    async def read(self, path: str, anchor: str = "", offset: int = 0) -> HelpRead | None:
        """Returns a page or a section of it from an offset on; None where there is no such one."""
        index = await self._index()
        page = index.pages.get(path) if index is not None else None
        if page is None:
            return None
        section = page.section(anchor) if anchor else None
        if anchor and section is None:
            return None
        whole = page.text if section is None else page.text[section.start : section.end].rstrip("\n")
        text = whole[offset : offset + MOST_CHARS]
        behind = offset + len(text)
        rest = behind if text and behind < len(whole) else None
        outline = page.sections[:MOST_OUTLINE] if section is None or rest is not None else ()
        return HelpRead(page, section, text, len(whole), rest, outline)

    async def _index(self) -> HelpIndex | None:
        # Calls at once share one build, which a caller that leaves does not end. It is never built anew: the
        # documentation changes only with the build.
        if self._building is None:
            self._building = asyncio.create_task(asyncio.to_thread(self._build), name="help-index")
        return await asyncio.shield(self._building)

    def _build(self) -> HelpIndex | None:
        pages = self._pages()
        return HelpIndex(pages) if pages else None
