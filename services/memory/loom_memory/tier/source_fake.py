"""A database for the tier that holds what it is given; for tests."""

import asyncio
import base64
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import numpy as np

from loom_common.call import Scope
from loom_common.clickhouse import Row
from loom_memory.domain.analyzer import analyze_text
from loom_memory.domain.memory import Identity, Memory
from loom_memory.domain.vectors import VectorSpace
from loom_memory.store.columns import row_from_memory
from loom_memory.store.embeddings import TABLE as EMBEDDINGS
from loom_memory.store.memories import TABLE as MEMORIES
from loom_memory.store.tier_rows import MOST_CHANGES, Change, Mark, NamespaceSize
from loom_memory.tier.packing import PLACES

_BLOCK = 100
_VERSION, _TOMBSTONE = PLACES["version"], PLACES["tombstoned_at"]


class FakeTierSource:
    """Keeps the rows of both tables as they would be inserted.

    Attributes:
        gate: While it is not set, a read of vectors waits for it after the rows were read.
        looks: How often `marks` was asked.
    """

    def __init__(self, space: VectorSpace) -> None:
        self.space = space
        self.memories: list[Sequence[Any]] = []
        self.embeddings: list[Sequence[Any]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.rows_read = asyncio.Event()
        self.looks = 0

    def memory_row(self, memory: Memory) -> Sequence[Any]:
        """Returns a memory as a row that is inserted."""
        text = analyze_text(memory.content.value)
        return (*row_from_memory(memory), text.term_ids, text.dl)

    def vector_row(self, memory: Memory, chunk: int, vector: Sequence[float]) -> Sequence[Any]:
        """Returns a vector as a row that is inserted."""
        values: dict[str, Any] = dict.fromkeys(EMBEDDINGS.column_names)
        values |= {
            "org": memory.scope.org,
            "namespace": memory.scope.namespace,
            "embedding_model": self.space.model,
            "memory_key": memory.identity.key,
            "user_id": memory.identity.user_id,
            "session_id": memory.identity.session_id,
            "chunk": chunk,
            "version": memory.version,
            "embedding": list(vector),
            "embedding_dim": len(vector),
        }
        return tuple(values.values())

    async def size(self, scope: Scope, space: VectorSpace) -> NamespaceSize:
        """See `TierSource.size`."""
        rows = self._final(scope)
        values = sum(len(row[PLACES["value"]]) for row in rows)
        return NamespaceSize(len(rows), values, sum(len(row[-2]) for row in rows), len(self._vectors(scope, space)))

    async def rows(self, scope: Scope) -> AsyncGenerator[Sequence[Row], None]:
        """See `TierSource.rows`."""
        rows = [_packed_row(row) for row in self._final(scope)]
        for first in range(0, len(rows), _BLOCK):
            yield rows[first : first + _BLOCK]
        self.rows_read.set()

    async def vectors(self, scope: Scope, space: VectorSpace) -> AsyncGenerator[Sequence[Row], None]:
        """See `TierSource.vectors`."""
        await self.gate.wait()
        rows = [_packed_vector(row) for row in self._vectors(scope, space)]
        for first in range(0, len(rows), _BLOCK):
            yield rows[first : first + _BLOCK]

    async def marks(
        self, scope: Scope, space: VectorSpace, *, rows_after: int, vectors_after: int
    ) -> tuple[Mark, Mark]:
        """See `TierSource.marks`."""
        self.looks += 1
        rows = self._final(scope)
        live = [row for row in rows if row[_TOMBSTONE] is None]
        vectors = self._vectors(scope, space)
        changed = [
            Change(Identity(*row[2:5]), row[_VERSION], int(row[_TOMBSTONE] is None))
            for row in rows
            if row[_VERSION] > rows_after
        ]
        new = [Change(Identity(*row[3:6]), row[7], row[6]) for row in vectors if row[7] > vectors_after]
        return (
            Mark(
                len(live),
                sum(row[_VERSION] for row in live) % 2**64,
                max((row[_VERSION] for row in rows), default=0),
                changed[:MOST_CHANGES],
            ),
            Mark(
                len(vectors),
                sum(row[7] for row in vectors) % 2**64,
                max((row[7] for row in vectors), default=0),
                new[:MOST_CHANGES],
            ),
        )

    async def rows_of(self, scope: Scope, identities: Sequence[Identity]) -> Sequence[Row]:
        """See `TierSource.rows_of`."""
        return [_packed_row(row) for row in self._final(scope) if Identity(*row[2:5]) in identities]

    async def vectors_of(self, scope: Scope, space: VectorSpace, identities: Sequence[Identity]) -> Sequence[Row]:
        """See `TierSource.vectors_of`."""
        return [_packed_vector(row) for row in self._vectors(scope, space) if Identity(*row[3:6]) in identities]

    def _final(self, scope: Scope) -> list[Sequence[Any]]:
        newest: dict[tuple[Any, ...], Sequence[Any]] = {}
        for row in self.memories:
            held = newest.get(tuple(row[2:5]))
            if (row[0], row[1]) == (scope.org, scope.namespace) and (held is None or held[_VERSION] < row[_VERSION]):
                newest[tuple(row[2:5])] = row
        return list(newest.values())

    def _vectors(self, scope: Scope, space: VectorSpace) -> list[Sequence[Any]]:
        wanted = (scope.org, scope.namespace, space.model, space.dim)
        return [row for row in self.embeddings if (*row[:3], row[11]) == wanted]


def _packed_row(row: Sequence[Any]) -> Row:
    terms = MEMORIES.column_names.index("term_ids")
    return (*row[:terms], _packed(np.array(row[terms], np.uint32)), row[terms + 1])


def _packed_vector(row: Sequence[Any]) -> Row:
    return (*row[3:6], row[7], row[6], _packed(np.array(row[10], np.float32)))


def _packed(numbers: Any) -> str:
    count, prefix = len(numbers), bytearray()
    while count >= 0x80:
        prefix.append(count & 0x7F | 0x80)
        count >>= 7
    prefix.append(count)
    return base64.b64encode(bytes(prefix) + numbers.tobytes()).decode()
