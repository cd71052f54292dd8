"""Memories and vectors for tests of the tier."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np

from loom_common.call import Scope
from loom_common.clickhouse import Table
from loom_common.clock import FakeClock
from loom_memory.domain.memory import Content, Identity, Memory
from loom_memory.domain.vectors import VectorSpace
from loom_memory.store.embeddings import TABLE as EMBEDDINGS
from loom_memory.store.memories import TABLE as MEMORIES
from loom_memory.tier.cache import Tier
from loom_memory.tier.source_fake import FakeTierSource

OTHER_TABLE = Table.of("other", org="String", namespace="String")
SPACE = VectorSpace("model", 8)
SCOPE = Scope("acme", "team")
NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def memory(key: str, version: int, value: str = "coffee", *, scope: Scope = SCOPE, **more: object) -> Memory:
    """Returns a memory; `more` are fields of its content, or `user_id` and `session_id`."""
    identity = Identity(key, str(more.pop("user_id", "")), str(more.pop("session_id", "")))
    at = NOW + timedelta(milliseconds=version % 100_000)
    content = Content(value, **more)  # type: ignore[arg-type]  # any field of Content
    return Memory(scope, identity, content, "human:test", 1, version, at, at)


def deleted(gone: Memory, version: int) -> Memory:
    """Returns the row of a deletion."""
    return gone.tombstone("human:test", version, NOW)


def unit(seed: int) -> list[float]:
    """Returns a vector of unit length."""
    vector = np.random.default_rng(seed).normal(size=SPACE.dim)
    return [float(part) for part in vector / np.linalg.norm(vector)]


class TierHarness:
    """A tier over a database that a test fills; `store` is what this process writes, `foreign` another's write."""

    def __init__(self, *, max_bytes: int = 1 << 26, exclusive: bool = True) -> None:
        self.source = FakeTierSource(SPACE)
        self.clock = FakeClock(NOW)
        self.tier = Tier(self.source, self.clock, max_bytes=max_bytes, exclusive=exclusive)

    def foreign(self, written: Memory, vectors: Sequence[Sequence[float]] = ()) -> None:
        """Writes to the database alone."""
        for chunk, vector in enumerate(vectors):
            self.source.embeddings.append(self.source.vector_row(written, chunk, vector))
        self.source.memories.append(self.source.memory_row(written))

    def store(self, written: Memory, vectors: Sequence[Sequence[float]] = ()) -> None:
        """Writes to the database and tells the tier, in the order of a write."""
        for chunk, vector in enumerate(vectors):
            row = self.source.vector_row(written, chunk, vector)
            self.source.embeddings.append(row)
            self.tier.stored(written.scope, EMBEDDINGS.name, [row])
        row = self.source.memory_row(written)
        self.source.memories.append(row)
        self.tier.stored(written.scope, MEMORIES.name, [row])

    async def loaded(self, scope: Scope = SCOPE) -> None:
        """Loads a namespace."""
        assert await self.tier.load(scope, SPACE)

    async def keys(self, scope: Scope = SCOPE) -> list[str] | None:
        """Returns the keys that the tier holds of a namespace, sorted, or None where it holds none of it."""
        shard = await self.tier.shard(scope, SPACE)
        if shard is None:
            return None
        return sorted(shard.identity(place).key for place, packed in enumerate(shard.packed) if packed is not None)
