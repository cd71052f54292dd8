"""Keeping a shard current where other processes write the same database too.

Every search looks at the state of its namespace in the database: how many rows there are and the sum of their versions,
which differ wherever any row does, because the version of a row only ever rises. What is newer is read; where the
states still differ afterwards, the database answers the search.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from loom_common.call import Scope
from loom_common.clock import Clock
from loom_memory.domain.memory import Identity
from loom_memory.store.tier_rows import MOST_CHANGES, Change, Mark
from loom_memory.tier.shard import Shard, fill_rows, fill_vectors
from loom_memory.tier.source import TierSource

OVERLAP_NS: Final = 60_000_000_000
"""How old the version of a row may be when it is stored: a write draws it, a time, first and ends with its row.

Source: chosen, the time after which others hold a write for dead.
"""

_BITS: Final = 2**64
_MOST_MISSES: Final = 3

Seen = tuple[Identity, int, int]


class Currency:
    """The look at the database before each search of one shard; those that wait share the next look.

    Attributes:
        is_lost: Whether the shard differs from the database in a way that no look mends.
    """

    def __init__(
        self,
        rows: TierSource,
        scope: Scope,
        shard: Shard,
        clock: Clock,
        *,
        settled: int,
        vectors: int,
        vector_total: int,
        seen: set[Seen],
    ) -> None:
        # All up to the version `settled` was read. Of the vectors: their count, the sum of their versions, and each one
        # behind it.
        self._rows = rows
        self._clock = clock
        self._settled = settled
        self._scope = scope
        self._shard = shard
        self._vectors = vectors
        self._vector_total = vector_total
        self._seen = seen
        self._misses = 0
        self._running: asyncio.Task[bool] | None = None
        self._next: asyncio.Task[bool] | None = None
        self.is_lost = False

    async def is_current(self) -> bool:
        """Brings the shard to the state of a moment after the call, and says whether that was possible.

        Raises:
            LoomError: The database did not answer.
        """
        if self._next is None:
            self._next = asyncio.create_task(self._look_after(self._running))
        return await asyncio.shield(self._next)

    async def _look_after(self, running: asyncio.Task[bool] | None) -> bool:
        if running is not None and not running.done():
            await asyncio.wait({running})
        self._running, self._next = self._next, None
        if self.is_lost:
            return False
        for _ in range(2):
            began_ns = self._clock.now_ns()
            rows, vectors = await self._rows.marks(
                self._scope, self._shard.space, rows_after=self._settled, vectors_after=self._settled
            )
            if await self._catch_up(rows, vectors):
                self._misses = 0
                self._settle(began_ns - OVERLAP_NS)
                return True
        self._misses += 1
        self.is_lost = self._misses >= _MOST_MISSES
        return False

    async def _catch_up(self, rows: Mark, vectors: Mark) -> bool:
        """Reads what is newer and says whether the shard is in the state of the marks then."""
        if max(len(rows.changes), len(vectors.changes)) >= MOST_CHANGES:
            return False
        new_rows = [change.identity for change in rows.changes if change.version > self._shard.version(change.identity)]
        new_vectors = [change for change in vectors.changes if _seen(change) not in self._seen]
        await self._read(new_rows, new_vectors)
        self._note(new_vectors)
        shard = self._shard
        return (
            rows.count == shard.alive
            and rows.total == shard.total % _BITS
            and vectors.count == self._vectors
            and vectors.total == self._vector_total % _BITS
        )

    async def _read(self, rows: Sequence[Identity], vectors: Sequence[Change]) -> None:
        named = sorted({*rows, *(change.identity for change in vectors)})
        if rows:
            fill_rows(self._shard, await self._rows.rows_of(self._scope, rows))
        if named:
            fill_vectors(self._shard, await self._rows.vectors_of(self._scope, self._shard.space, named))

    def _note(self, vectors: Sequence[Change]) -> None:
        self._vectors += len(vectors)
        self._vector_total += sum(change.version for change in vectors)
        self._seen.update(map(_seen, vectors))

    def _settle(self, version: int) -> None:
        """Notes that every row up to a version is there, so that no later look has to tell it again."""
        self._settled = max(self._settled, version)
        self._seen = {each for each in self._seen if each[1] > self._settled}


def _seen(change: Change) -> Seen:
    return change.identity, change.version, change.number
