"""A namespace as it was at a moment, read like the present one.

What has not been written again since is where it was: its row, its terms and its vectors count. What has is read from
its versions; their terms are made here, and their vectors are made anew, because those of superseded versions are
removed. So the same search finds the same in the same order as it did then, but for what was deleted since, which is
gone from every moment.
"""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.together import both
from loom_memory.app.embedding import EmbeddingPort
from loom_memory.domain.analyzer import AnalyzedQuery, AnalyzedText, analyze_text
from loom_memory.domain.findings import Traits
from loom_memory.domain.keys import key_text
from loom_memory.domain.memory import Filter, Identity, Memory, Sketch
from loom_memory.domain.names import NamedExactly
from loom_memory.domain.narrowing import Span
from loom_memory.domain.ranking import EXCERPT_CHARS
from loom_memory.domain.scoring import LexicalStatistics, lexical_match
from loom_memory.store.as_of import AsOfRepository, unchanged
from loom_memory.store.embeddings import EmbeddingRepository, QueryVector, VectorHit
from loom_memory.store.legs import LegRepository, NamedHit
from loom_memory.store.memories import LEAST_ROWS, LexicalHit, MemoryRepository, Neighbour, Statistics

MAX_CHANGED: Final = 5_000
"""Most memories that are read from their versions, the last written first. Source: chosen; their texts take some MB."""

MAX_EMBEDDED: Final = 256
"""Most of them whose vectors are made anew for one search; the others are found by their words alone.

Source: chosen; half a second of a local embedder's time."""


@dataclass(frozen=True, slots=True)
class _Changed:
    memory: Memory
    text: AnalyzedText


@dataclass(slots=True)
class PastNamespace:
    """A namespace as it was; the rows and the vectors of a search. Made by `Past`."""

    as_of: datetime
    memories: MemoryRepository
    embeddings: EmbeddingRepository
    legs: LegRepository
    versions: AsOfRepository
    embedding: EmbeddingPort
    changed: dict[Identity, _Changed]
    unsearched: int
    _chunks: dict[Identity, list[Sequence[float]]] = field(default_factory=dict)
    _embedding_once: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def statistics(self, scope: Scope, wanted: Filter, now: datetime) -> Statistics:
        """See `MemoryRepository.statistics`."""
        same = await self.memories.statistics(scope, unchanged(wanted, self.as_of), self.as_of)
        rows = same.rows + len(self.changed)
        total_dl = same.mean_dl * same.rows + sum(row.text.dl for row in self.changed.values())
        speakers = {row.memory.content.speaker for row in self.changed.values()} - {""}
        mean_dl = max(total_dl / rows, 1.0) if rows else 1.0
        return Statistics(rows, mean_dl, tuple(sorted(speakers.union(same.speakers))))

    async def lexical(
        self, scope: Scope, wanted: Filter, now: datetime, query: AnalyzedQuery, statistics: Statistics, limit: int
    ) -> list[LexicalHit]:
        """See `MemoryRepository.lexical`."""
        df = await self.versions.frequencies(scope, wanted, self.as_of, query)
        for row in self.changed.values():
            held = set(row.text.term_ids)
            df = [count + (term in held) for count, term in zip(df, query.term_ids, strict=True)]
        rows = max(statistics.rows, LEAST_ROWS, *df)
        weights = [math.log(1 + (rows - count + 0.5) / (count + 0.5)) for count in df]
        same = await self.versions.lexical(scope, wanted, self.as_of, query, weights, statistics.mean_dl, limit)
        counted = LexicalStatistics(rows, statistics.mean_dl, df)
        hits = [*same, *(hit for row in self.changed.values() if (hit := _lexical_hit(row, query, counted)))]
        return sorted(hits, key=lambda hit: (not hit.exact, -hit.bm25, hit.identity))[:limit]

    async def sketches(
        self, scope: Scope, wanted: Filter, identities: Sequence[Identity], now: datetime
    ) -> dict[Identity, Sketch]:
        """See `MemoryRepository.sketches`."""
        others = [identity for identity in identities if identity not in self.changed]
        same = await self.memories.sketches(scope, unchanged(wanted, self.as_of), others, self.as_of)
        return {**same, **{row.memory.identity: _sketch(row.memory) for row in self._of(identities)}}

    async def fetch(
        self, scope: Scope, wanted: Filter, identities: Sequence[Identity], now: datetime
    ) -> dict[Identity, Memory]:
        """See `MemoryRepository.fetch`."""
        others = [identity for identity in identities if identity not in self.changed]
        same = await self.memories.fetch(scope, unchanged(wanted, self.as_of), others, self.as_of)
        return {**same, **{row.memory.identity: row.memory for row in self._of(identities)}}

    async def neighbours(
        self, scope: Scope, wanted: Filter, now: datetime, seeds: Sequence[Identity], statistics: Statistics
    ) -> list[Neighbour]:
        """See `MemoryRepository.neighbours`."""
        return await self.versions.neighbours(scope, wanted, self.as_of, seeds)

    async def nearest(self, scope: Scope, wanted: Filter, query: QueryVector, limit: int) -> list[VectorHit]:
        """See `EmbeddingRepository.nearest`."""
        return await self.nearest_live(scope, wanted, self.as_of, query, limit)

    async def nearest_live(
        self, scope: Scope, wanted: Filter, now: datetime, query: QueryVector, limit: int
    ) -> list[VectorHit]:
        """See `EmbeddingRepository.nearest_live`."""
        same, _ = await both(
            self.embeddings.nearest_live(scope, unchanged(wanted, self.as_of), self.as_of, query, limit),
            self._embed(),
        )
        hits = [*same, *self._near(query, list(self._chunks))]
        return sorted(hits, key=lambda hit: (-hit.cosine, hit.identity))[:limit]

    async def cosines(
        self, scope: Scope, query: QueryVector, identities: Sequence[Identity]
    ) -> dict[tuple[Identity, int], float]:
        """See `EmbeddingRepository.cosines`."""
        others = [identity for identity in identities if identity not in self.changed]
        same = await self.embeddings.cosines(scope, query, others)
        known = [identity for identity in identities if identity in self._chunks]
        return {**same, **{(hit.identity, hit.version): hit.cosine for hit in self._near(query, known)}}

    async def named(
        self, scope: Scope, wanted: Filter, now: datetime, names: NamedExactly, limit: int
    ) -> list[NamedHit]:
        """See `LegRepository.named`."""
        same = await self.legs.named(scope, unchanged(wanted, self.as_of), self.as_of, names, limit)
        hits = [
            NamedHit(
                identity,
                identity.key in names.keys,
                not set(names.tags).isdisjoint(row.memory.content.tags),
            )
            for identity, row in self.changed.items()
        ]
        return [*same, *(hit for hit in hits if hit.has_key or hit.has_tag)][:limit]

    async def within(self, scope: Scope, wanted: Filter, now: datetime, span: Span, limit: int) -> list[Identity]:
        """See `LegRepository.within`."""
        same = await self.legs.within(scope, unchanged(wanted, self.as_of), self.as_of, span, limit)
        others = [identity for identity, row in self.changed.items() if span.holds(_happened(row.memory))]
        return [*same, *others]

    async def traits(self, scope: Scope, wanted: Filter, now: datetime, identities: Sequence[Identity]) -> list[Traits]:
        """See `LegRepository.traits`."""
        others = [identity for identity in identities if identity not in self.changed]
        same = await self.legs.traits(scope, unchanged(wanted, self.as_of), self.as_of, others)
        return [*same, *(_traits(row.memory) for row in self._of(identities))]

    def _of(self, identities: Sequence[Identity]) -> list[_Changed]:
        return [self.changed[identity] for identity in identities if identity in self.changed]

    def _near(self, query: QueryVector, identities: Sequence[Identity]) -> list[VectorHit]:
        return [
            VectorHit(
                identity,
                self.changed[identity].memory.version,
                max(_cosine(chunk, query.vector) for chunk in self._chunks[identity]),
            )
            for identity in identities
        ]

    async def _embed(self) -> None:
        """Makes the vectors of what was, once for a search."""
        async with self._embedding_once:
            if self._chunks or not self.changed:
                return
            rows = [row.memory for row in list(self.changed.values())[:MAX_EMBEDDED]]
            keys = [key_text(memory.identity.key) for memory in rows]
            texts = [*(memory.content.value for memory in rows), *(key for key in keys if key)]
            found = dict(zip(texts, await self.embedding.embed_many(texts), strict=True))
            for memory, key in zip(rows, keys, strict=True):
                chunks = [found[text] for text in (memory.content.value, key) if text]
                vectors = [chunk.vector for part in chunks if isinstance(part, list) for chunk in part if chunk.vector]
                if vectors:
                    self._chunks[memory.identity] = vectors


class Past:
    """Looks back into namespaces; reads the store itself, as nothing that is kept in memory knows of the past."""

    def __init__(
        self,
        versions: AsOfRepository,
        memories: MemoryRepository,
        embeddings: EmbeddingRepository,
        legs: LegRepository,
        embedding: EmbeddingPort,
    ) -> None:
        self._versions = versions
        self._memories = memories
        self._embeddings = embeddings
        self._legs = legs
        self._embedding = embedding

    async def at(self, scope: Scope, wanted: Filter, as_of: datetime) -> PastNamespace:
        """Returns a namespace as it was at `as_of`, for one search with this filter."""
        rows = await self._versions.changed(scope, wanted, as_of, MAX_CHANGED)
        texts = await asyncio.to_thread(lambda: [analyze_text(row.content.value) for row in rows])
        return PastNamespace(
            as_of=as_of,
            memories=self._memories,
            embeddings=self._embeddings,
            legs=self._legs,
            versions=self._versions,
            embedding=self._embedding,
            changed={row.identity: _Changed(row, text) for row, text in zip(rows, texts, strict=True)},
            unsearched=max(0, len(rows) - MAX_EMBEDDED),
        )


def _lexical_hit(row: _Changed, query: AnalyzedQuery, statistics: LexicalStatistics) -> LexicalHit | None:
    match = lexical_match(query, row.text.term_ids, row.text.dl, statistics)
    if not match.share:
        return None
    return LexicalHit(row.memory.identity, row.memory.version, match.bm25, match.share, match.exact)


def _sketch(memory: Memory) -> Sketch:
    content = memory.content
    return Sketch(
        memory.identity,
        memory.version,
        content.speaker,
        _happened(memory),
        len(content.value),
        content.value[:EXCERPT_CHARS],
        content.kind,
        content.importance,
        content.pinned,
        memory.valid_at,
        memory.invalid_at,
        memory.updated_at,
    )


def _happened(memory: Memory) -> datetime:
    return memory.content.event_time or memory.created_at


def _traits(memory: Memory) -> Traits:
    content = memory.content
    return Traits(content.kind, content.tags, content.agent, _happened(memory).strftime("%Y-%m"))


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    dot = sum(a * b for a, b in zip(one, other, strict=True))
    lengths = math.sqrt(sum(a * a for a in one)) * math.sqrt(sum(b * b for b in other))
    return dot / lengths if lengths else 0.0
