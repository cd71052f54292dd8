"""Reading one namespace into a shard."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

from loom_common.call import Scope
from loom_memory.domain.memory import Identity
from loom_memory.domain.vectors import VectorSpace
from loom_memory.store.tier_rows import NamespaceSize
from loom_memory.tier.shard import Shard, fill_rows, fill_vectors
from loom_memory.tier.source import TierSource

# What a namespace takes, about. Source: measured with bench/memory.py, 2026-11-30, and rounded up.
_ROW_BYTES: Final = 700
_TERM_BYTES: Final = 6
_SPARE: Final = 1.1


class DoesNotFit(Exception):
    """The namespace takes more memory than there is for it."""


@dataclass(slots=True)
class Loaded:
    """A namespace as it was read.

    Attributes:
        settled: Version up to which no row comes any more.
        vectors: Rows of vectors that were read, of whatever version.
        vector_total: Sum of their versions.
        recent: Those of them behind `settled`, which a later look tells again.
    """

    shard: Shard
    settled: int
    vectors: int = 0
    vector_total: int = 0
    recent: list[tuple[Identity, int, int]] = field(default_factory=list)


def estimated_bytes(size: NamespaceSize, space: VectorSpace) -> int:
    """Returns about how much memory a namespace takes."""
    vectors = size.vectors * (space.dim * 4 + 16)
    return int(_SPARE * (size.rows * _ROW_BYTES + size.value_bytes + size.terms * _TERM_BYTES + vectors))


async def read_shard(
    rows: TierSource, scope: Scope, space: VectorSpace, room: Callable[[], int], settled: int
) -> Loaded:
    """Returns a namespace as it is stored; what is written meanwhile may be in it or not.

    Args:
        rows: Where it is read.
        scope: The namespace.
        space: Whose vectors are read.
        room: Tells how many bytes it may take.
        settled: As in `Loaded`.

    Raises:
        DoesNotFit: It takes more than there is room for.
        LoomError: The database did not answer.
        TooManyEarly: It holds many vectors whose rows are not there.
    """
    loaded = Loaded(Shard(space), settled)
    shard = loaded.shard
    async with aclosing(rows.rows(scope)) as blocks:
        async for block in blocks:
            # In a thread, so that the loop goes on between the rows.
            await asyncio.to_thread(fill_rows, shard, block)
            _require_room(shard, room)
    async with aclosing(rows.vectors(scope, space)) as blocks:
        async for block in blocks:
            await asyncio.to_thread(_take_vectors, loaded, block)
            _require_room(shard, room)
    await asyncio.to_thread(shard.read_ended)
    return loaded


def _take_vectors(loaded: Loaded, block: Sequence[Sequence[Any]]) -> None:
    fill_vectors(loaded.shard, block)
    loaded.vectors += len(block)
    loaded.vector_total += sum(row[3] for row in block)
    loaded.recent += [(Identity(*row[:3]), row[3], row[4]) for row in block if row[3] > loaded.settled]


def _require_room(shard: Shard, room: Callable[[], int]) -> None:
    if shard.size_bytes > room():
        raise DoesNotFit
