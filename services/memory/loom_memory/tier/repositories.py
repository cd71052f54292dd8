"""The repositories of a search, answered from the tier where it holds the namespace, else by the database."""

import asyncio
import os
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Concatenate, Final, ParamSpec, TypeVar

import numpy as np

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse
from loom_memory.domain.analyzer import AnalyzedQuery
from loom_memory.domain.memory import Filter, Identity, Memory, Sketch
from loom_memory.domain.names import NamedExactly
from loom_memory.domain.narrowing import Span
from loom_memory.domain.vectors import VectorSpace
from loom_memory.store.embeddings import EmbeddingRepository, QueryVector, VectorHit
from loom_memory.store.legs import LegRepository, NamedHit
from loom_memory.store.memories import LexicalHit, MemoryRepository, Neighbour, Statistics
from loom_memory.store.rewrites import Present, VectorRewrites
from loom_memory.tier import reading
from loom_memory.tier.cache import Tier
from loom_memory.tier.selecting import is_known
from loom_memory.tier.shard import Shard
from loom_memory.tier.vectors import Scanned, Vector

# Rows of a shard from which reading it takes longer than handing it to a thread. Source: measured, 2026-11-30.
_IN_THREAD: Final = 20_000
# Threads that compare one query with the vectors of a large shard: one core does not use the whole bandwidth of memory.
_PARTS: Final = min(4, os.cpu_count() or 1)

T = TypeVar("T")
P = ParamSpec("P")


class TieredMemories(MemoryRepository):
    """`MemoryRepository`, with the reads of a search answered from the tier."""

    def __init__(self, ch: ClickHouse, tier: Tier) -> None:
        super().__init__(ch)
        self._tier = tier

    async def current(self, scope: Scope, identities: Sequence[Identity]) -> dict[Identity, Memory]:
        """See `MemoryRepository.current`."""
        # A writer who met another process's write reads again, in the same request, what that one wrote.
        shard = await self._tier.shard(scope) if self._tier.is_exclusive else None
        # Of what was deleted the tier knows no more than that.
        if shard is None or any(shard.is_gone(identity) for identity in identities):
            return await super().current(scope, identities)
        return reading.current(shard, identities)

    async def fetch(
        self, scope: Scope, wanted: Filter, identities: Sequence[Identity], now: datetime
    ) -> dict[Identity, Memory]:
        """See `MemoryRepository.fetch`."""
        shard = await self._shard(scope, wanted)
        if shard is None:
            return await super().fetch(scope, wanted, identities, now)
        return reading.fetch(shard, wanted, identities, now)

    async def sketches(
        self, scope: Scope, wanted: Filter, identities: Sequence[Identity], now: datetime
    ) -> dict[Identity, Sketch]:
        """See `MemoryRepository.sketches`."""
        shard = await self._shard(scope, wanted)
        if shard is None:
            return await super().sketches(scope, wanted, identities, now)
        return reading.sketches(shard, wanted, identities, now)

    async def statistics(self, scope: Scope, wanted: Filter, now: datetime) -> Statistics:
        """See `MemoryRepository.statistics`."""
        shard = await self._shard(scope, wanted)
        if shard is None:
            return await super().statistics(scope, wanted, now)
        return await _read(reading.statistics, shard, wanted, now)

    async def lexical(
        self, scope: Scope, wanted: Filter, now: datetime, query: AnalyzedQuery, statistics: Statistics, limit: int
    ) -> list[LexicalHit]:
        """See `MemoryRepository.lexical`."""
        shard = await self._shard(scope, wanted)
        if shard is None:
            return await super().lexical(scope, wanted, now, query, statistics, limit)
        return await _read(reading.lexical, shard, wanted, now, query, statistics, limit)

    async def neighbours(
        self, scope: Scope, wanted: Filter, now: datetime, seeds: Sequence[Identity], statistics: Statistics
    ) -> list[Neighbour]:
        """See `MemoryRepository.neighbours`."""
        shard = await self._shard(scope, wanted)
        if shard is None:
            return await super().neighbours(scope, wanted, now, seeds, statistics)
        return await _read(reading.neighbours, shard, wanted, now, seeds)

    async def _shard(self, scope: Scope, wanted: Filter) -> Shard | None:
        return await self._tier.shard(scope) if is_known(wanted) else None


class TieredEmbeddings(EmbeddingRepository):
    """`EmbeddingRepository`, with the reads of a search answered from the tier."""

    def __init__(self, ch: ClickHouse, tier: Tier) -> None:
        super().__init__(ch)
        self._tier = tier

    async def nearest(self, scope: Scope, wanted: Filter, query: QueryVector, limit: int) -> list[VectorHit]:
        """See `EmbeddingRepository.nearest`."""
        shard = await self._shard(scope, query)
        if shard is None:
            return await super().nearest(scope, wanted, query, limit)
        return await _read(reading.nearest, shard, wanted, await _scan(shard, _unit(query)), limit)

    async def nearest_live(
        self, scope: Scope, wanted: Filter, now: datetime, query: QueryVector, limit: int
    ) -> list[VectorHit]:
        """See `EmbeddingRepository.nearest_live`."""
        shard = await self._shard(scope, query)
        if shard is None or not is_known(wanted):
            return await super().nearest_live(scope, wanted, now, query, limit)
        return await _read(reading.nearest_live, shard, wanted, now, await _scan(shard, _unit(query)), limit)

    async def near_each(
        self,
        scope: Scope,
        wanted: Filter,
        now: datetime,
        queries: Sequence[QueryVector],
        *,
        least: float,
        limit: int,
    ) -> list[list[VectorHit]]:
        """See `EmbeddingRepository.near_each`."""
        if not queries:
            return []
        shard = await self._shard(scope, queries[0])
        if shard is None or not is_known(wanted):
            return await super().near_each(scope, wanted, now, queries, least=least, limit=limit)
        found = []
        for query in queries:
            hits = await _read(reading.nearest_live, shard, wanted, now, await _scan(shard, _unit(query)), limit)
            found.append([hit for hit in hits if hit.cosine >= least])
        return found

    async def cosines(
        self, scope: Scope, query: QueryVector, identities: Sequence[Identity]
    ) -> dict[tuple[Identity, int], float]:
        """See `EmbeddingRepository.cosines`."""
        shard = await self._tier.shard(scope, _space(query))
        if shard is None:
            return await super().cosines(scope, query, identities)
        return reading.cosines(shard, _unit(query), identities)

    async def _shard(self, scope: Scope, query: QueryVector) -> Shard | None:
        space = _space(query)
        shard = await self._tier.shard(scope, space)
        self._tier.searched(scope, space, is_held=shard is not None)
        return shard


class TieredLegs(LegRepository):
    """`LegRepository`, with the legs of a search answered from the tier."""

    def __init__(self, ch: ClickHouse, tier: Tier) -> None:
        super().__init__(ch)
        self._tier = tier

    async def named(
        self, scope: Scope, wanted: Filter, now: datetime, names: NamedExactly, limit: int
    ) -> list[NamedHit]:
        """See `LegRepository.named`."""
        shard = await self._shard(scope, wanted) if names else None
        if shard is None:
            return await super().named(scope, wanted, now, names, limit)
        return await _read(reading.named, shard, wanted, now, names, limit)

    async def within(self, scope: Scope, wanted: Filter, now: datetime, span: Span, limit: int) -> list[Identity]:
        """See `LegRepository.within`."""
        shard = await self._shard(scope, wanted)
        if shard is None:
            return await super().within(scope, wanted, now, span, limit)
        return await _read(reading.happened_within, shard, wanted, now, span, limit)

    async def _shard(self, scope: Scope, wanted: Filter) -> Shard | None:
        return await self._tier.shard(scope) if is_known(wanted) else None


class TieredRewrites(VectorRewrites):
    """`VectorRewrites`, which knows without a statement where nothing waits."""

    def __init__(self, ch: ClickHouse, tier: Tier) -> None:
        super().__init__(ch)
        self._tier = tier

    async def present(self, scope: Scope, wanted: Filter, space: VectorSpace) -> Present:
        """See `VectorRewrites.present`; rows of no current version are not counted where every memory has vectors."""
        shard = await self._tier.shard(scope, space)
        if shard is not None and len(shard.vectors) and shard.has_all_vectors:
            return Present(wanted=len(shard.vectors), others=0, other_vectors=0)
        return await super().present(scope, wanted, space)


async def _read(read: Callable[Concatenate[Shard, P], T], shard: Shard, *args: P.args, **more: P.kwargs) -> T:
    """Runs a read, in a thread where it would hold the loop."""
    if shard.alive < _IN_THREAD:
        return read(shard, *args, **more)
    return await asyncio.to_thread(read, shard, *args, **more)


async def _scan(shard: Shard, query: Vector) -> Scanned:
    """Compares all vectors of a shard with a query, in threads where it would hold the loop."""
    scanned = shard.vectors.begin_scan()
    if len(scanned.owners) < _IN_THREAD:
        shard.vectors.scan_part(scanned, query, 0, 1)
        return scanned
    parts = [asyncio.to_thread(shard.vectors.scan_part, scanned, query, part, _PARTS) for part in range(_PARTS)]
    await asyncio.gather(*parts)
    return scanned


def _space(query: QueryVector) -> VectorSpace:
    return VectorSpace(query.model, len(query.vector))


def _unit(query: QueryVector) -> Vector:
    vector = np.array(query.vector, np.float32)
    norm = np.linalg.norm(vector)
    return vector / norm if norm else vector
