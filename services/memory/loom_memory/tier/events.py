"""What a process stored, as the tier hears of it: rows of an insert, by namespace."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

import numpy as np

from loom_common.call import Scope
from loom_memory.domain.memory import Identity
from loom_memory.domain.vectors import VectorSpace
from loom_memory.store.embeddings import TABLE as EMBEDDINGS
from loom_memory.store.memories import TABLE as MEMORIES
from loom_memory.tier.packing import WIDTH
from loom_memory.tier.shard import Shard

TABLES: Final = frozenset({MEMORIES.name, EMBEDDINGS.name})

_TERMS, _LENGTH = MEMORIES.column_names.index("term_ids"), MEMORIES.column_names.index("dl")
_AT: Final = {name: place for place, name in enumerate(EMBEDDINGS.column_names)}
_MODEL, _DIM, _VECTOR, _CHUNK, _VERSION = (
    _AT[name] for name in ("embedding_model", "embedding_dim", "embedding", "chunk", "version")
)
_IDENTITY: Final = slice(_AT["memory_key"], _AT["session_id"] + 1)

Rows = Sequence[Sequence[Any]]


def by_scope(rows: Rows) -> Iterator[tuple[Scope, Rows]]:
    """Yields rows of one table with their namespaces, in order; both tables begin with its two names."""
    for names, group in groupby(rows, lambda row: (row[0], row[1])):
        yield Scope(*names), list(group)


def apply(shard: Shard, table: str, rows: Rows) -> None:
    """Takes the rows of an insert in.

    Raises:
        TooManyEarly: Too many vectors wait for rows that do not come.
    """
    if table == MEMORIES.name:
        for row in rows:
            shard.put(row[:WIDTH], np.array(row[_TERMS], np.uint32), row[_LENGTH])
        return
    for row in rows:
        if VectorSpace(row[_MODEL], row[_DIM]) == shard.space:
            vector = np.array(row[_VECTOR], np.float32)
            shard.put_vector(Identity(*row[_IDENTITY]), row[_VERSION], row[_CHUNK], vector)
