"""The sections of a pack that show memories: what answers the question, and what is pinned."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clock import Clock
from loom_common.together import both
from loom_memory.app.access import own_filter
from loom_memory.app.read import MemoryReader
from loom_memory.app.search import MemorySearch, SearchQuery
from loom_memory.app.search.ports import MemoryRows
from loom_memory.context.app.ports import Wanted
from loom_memory.context.domain.entries import Entry, memory_entry
from loom_memory.context.domain.sections import RECIPES, Section
from loom_memory.context.store.stack import PinnedIdentities
from loom_memory.domain.memory import Filter, Memory
from loom_memory.domain.narrowing import Narrowing

DECISION: Final = "decision"
_WHOLE_KINDS: Final = frozenset({DECISION, "constraint"})
_CHUNKS: Final = frozenset({"chunk", "turn", "message"})

# Source: chosen. Shorter than these tokens no memory is worth its line; more than so many are a list and no context.
_TOKENS_PER_MEMORY: Final = 40
_FEWEST: Final = 12
_MOST: Final = 60
# What is left out as a piece of a transcript must not be all that is looked at.
_BESIDE_CHUNKS: Final = 2
_MOST_PINNED: Final = 50
_MOST_LOOKED_AT: Final = 1_000


class RecalledMemories:
    """Memories that answer the question, decisions apart; without a question the newest.

    The search is the mode's, without what a language model would add to it.
    """

    sections = (Section.MEMORIES, Section.DECISIONS)

    def __init__(self, search: MemorySearch, reader: MemoryReader) -> None:
        self._search = search
        self._reader = reader

    async def read(self, scope: Scope, wanted: Wanted) -> Mapping[Section, Sequence[Entry]]:
        """See `Source.read`."""
        most = min(max(wanted.budget // _TOKENS_PER_MEMORY, _FEWEST), _MOST)
        keeping = own_filter(Filter(tags=wanted.tags))
        found = (
            await self._found(scope, wanted, keeping, most)
            if wanted.query
            else await self._newest(scope, keeping, most)
        )
        memories: list[Entry] = []
        decisions: list[Entry] = []
        for memory, score in found:
            kind = memory.content.kind
            if kind in _CHUNKS and not wanted.includes_chunks:
                continue
            apart = kind == DECISION and wanted.includes(Section.DECISIONS)
            (decisions if apart else memories).append(memory_entry(memory, score, is_whole=kind in _WHOLE_KINDS))
        return {Section.MEMORIES: memories[:most], Section.DECISIONS: decisions}

    async def _found(self, scope: Scope, wanted: Wanted, keeping: Filter, most: int) -> list[tuple[Memory, float]]:
        query = SearchQuery(
            wanted.query, keeping, most * _BESIDE_CHUNKS, recipe=RECIPES[wanted.mode], quality_filter=True, fast=True
        )
        result = await self._search.search(scope, query)
        return [(hit.memory, hit.score) for hit in result.hits]

    async def _newest(self, scope: Scope, keeping: Filter, most: int) -> list[tuple[Memory, float]]:
        """Returns the newest of all, and the newest decisions, which may be older than these."""
        pages = await both(
            self._reader.list(scope, keeping, page_size=most * _BESIDE_CHUNKS, page_token=""),
            self._reader.list(scope, replace(keeping, kinds=(DECISION,)), page_size=_FEWEST, page_token=""),
        )
        found = {memory.identity: memory for page in pages for memory in page.memories}
        return [(memory, 0.0) for memory in found.values()]


class MemoryStack:
    """What is pinned and holds, the weightiest first: the same for every question."""

    sections = (Section.MEMORY_STACK,)

    def __init__(self, pinned: PinnedIdentities, rows: MemoryRows, clock: Clock) -> None:
        self._pinned = pinned
        self._rows = rows
        self._clock = clock

    async def read(self, scope: Scope, wanted: Wanted) -> Mapping[Section, Sequence[Entry]]:
        """See `Source.read`."""
        keeping = own_filter(Filter(more=Narrowing(pinned=True)))
        identities = await self._pinned.read(scope, _MOST_LOOKED_AT)
        if not identities:
            return {}
        now = self._clock.now()
        found = await self._rows.fetch(scope, keeping, identities, now)
        memories = sorted(
            (memory for memory in found.values() if _holds(memory, now)),
            key=lambda memory: (-memory.content.importance, memory.identity),
        )
        entries = [memory_entry(memory, is_whole=memory.content.kind in _WHOLE_KINDS) for memory in memories]
        return {Section.MEMORY_STACK: entries[:_MOST_PINNED]}


def _holds(memory: Memory, now: datetime) -> bool:
    return (memory.valid_at is None or memory.valid_at <= now) and (
        memory.invalid_at is None or memory.invalid_at > now
    )
