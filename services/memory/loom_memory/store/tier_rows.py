"""What the tier in memory reads of a namespace: its shown rows and their vectors, whole, in blocks.

Numbers by the hundred come packed as text: as arrays each would become an object of its own, which took the event loop
with it for seconds at 100,000 rows.
"""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, Row, own_write_reads
from loom_memory.domain.memory import Identity
from loom_memory.domain.vectors import VectorSpace
from loom_memory.store.columns import IDENTITIES, IDENTITY, SELECTED
from loom_memory.store.embeddings import OF_SPACE
from loom_memory.store.filters import IN_SCOPE, in_scope

# Rows of one block. Source: chosen; taking one in holds the interpreter for some 20 ms.
_BLOCK: Final = {"max_block_size": 1_024, "preferred_block_size_bytes": 2**22}
# Loading must leave a core to the searches meanwhile.
_QUIET: Final = {"max_threads": 1}

# Not `formatRowNoNewline`: it cuts a last byte of 10 off whatever that byte is.
_PACKED_TERMS: Final = "base64Encode(formatRow('RowBinary', term_ids))"
_PACKED_VECTOR: Final = "base64Encode(formatRow('RowBinary', embedding))"
_ROWS: Final = f"""SELECT {SELECTED}, {_PACKED_TERMS}, dl FROM memory FINAL
WHERE {IN_SCOPE}"""
_VECTORS: Final = f"""SELECT {IDENTITY}, version, chunk, {_PACKED_VECTOR} FROM memory_embeddings
WHERE {IN_SCOPE} AND {OF_SPACE}"""
_NAMED: Final = f"({IDENTITY}) IN {{identities:{IDENTITIES}}}"

_SIZE: Final = f"""SELECT count(), sum(length(value)), sum(length(term_ids)) FROM memory
WHERE {IN_SCOPE} AND tombstoned_at IS NULL"""
_VECTOR_COUNT: Final = f"SELECT count() FROM memory_embeddings WHERE {IN_SCOPE} AND {OF_SPACE}"

# One statement, because planning each costs more than what it reads. Nothing is sorted and no text is read but keys.
_MARKS: Final = f"""SELECT 0 AS part, countIf(tombstoned_at IS NULL), sumIf(version, tombstoned_at IS NULL),
    max(version), groupArrayIf({{most:UInt32}})(({IDENTITY}, version, toUInt16(tombstoned_at IS NULL)),
        version > {{rows_after:UInt64}})
FROM memory FINAL WHERE {IN_SCOPE}
UNION ALL
SELECT 1 AS part, count(), sum(version), max(version),
    groupArrayIf({{most:UInt32}})(({IDENTITY}, version, chunk), version > {{vectors_after:UInt64}})
FROM memory_embeddings WHERE {IN_SCOPE} AND {OF_SPACE}"""

MOST_CHANGES: Final = 2_000
"""Changes that one look tells; of more the namespace is loaded anew."""


@dataclass(frozen=True, slots=True)
class NamespaceSize:
    """About how much a namespace would take: rows, letters of their values, terms, vectors."""

    rows: int
    value_bytes: int
    terms: int
    vectors: int


@dataclass(frozen=True, slots=True)
class Change:
    """One row that is new; `number` is the chunk of a vector, and of a memory 1 where it is shown, 0 where deleted."""

    identity: Identity
    version: int
    number: int


@dataclass(frozen=True, slots=True)
class Mark:
    """The state of one table of a namespace, which differs wherever a row of it does, and what changed lately.

    Attributes:
        count: Rows: of memories those not deleted, of vectors all.
        total: Sum of their versions, in 64 bits.
        newest: The highest version.
        changes: Rows behind the version that was asked for, at most `MOST_CHANGES`.
    """

    count: int
    total: int
    newest: int
    changes: Sequence[Change] = ()


class TierRows:
    """Reads both tables for the tier."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = own_write_reads(ch)

    async def size(self, scope: Scope, space: VectorSpace) -> NamespaceSize:
        """Returns about how much a namespace holds, superseded rows included."""
        parameters = {**in_scope(scope), **space._asdict()}
        rows = (await self._ch.query(_SIZE, in_scope(scope), settings=self._reads)).rows[0]
        vectors = (await self._ch.query(_VECTOR_COUNT, parameters, settings=self._reads)).scalar()
        return NamespaceSize(rows[0], rows[1], rows[2], vectors)

    def rows(self, scope: Scope) -> AsyncGenerator[Sequence[Row], None]:
        """Yields every row in blocks, deleted ones included: the shared columns, the packed terms, the length."""
        return self._ch.stream(_ROWS, in_scope(scope), settings={**_BLOCK, **_QUIET, **self._reads})

    def vectors(self, scope: Scope, space: VectorSpace) -> AsyncGenerator[Sequence[Row], None]:
        """Yields the vectors of every version in blocks: identity, version, chunk, the packed vector."""
        parameters = {**in_scope(scope), **space._asdict()}
        return self._ch.stream(_VECTORS, parameters, settings={**_BLOCK, **_QUIET, **self._reads})

    async def marks(
        self, scope: Scope, space: VectorSpace, *, rows_after: int, vectors_after: int
    ) -> tuple[Mark, Mark]:
        """Returns the state of memories and of vectors, with the changes behind these versions."""
        parameters = {
            **in_scope(scope),
            **space._asdict(),
            "rows_after": rows_after,
            "vectors_after": vectors_after,
            "most": MOST_CHANGES,
        }
        found = {row[0]: row[1:] for row in await self._ch.query(_MARKS, parameters, settings=self._reads)}
        return _mark(found.get(0)), _mark(found.get(1))

    async def rows_of(self, scope: Scope, identities: Sequence[Identity]) -> Sequence[Row]:
        """Returns the rows of these, as `rows` does."""
        if not identities:
            return []
        parameters = {**in_scope(scope), "identities": list(identities)}
        return (await self._ch.query(f"{_ROWS} AND {_NAMED}", parameters, settings=self._reads)).rows

    async def vectors_of(self, scope: Scope, space: VectorSpace, identities: Sequence[Identity]) -> Sequence[Row]:
        """Returns the vectors of these, as `vectors` does."""
        if not identities:
            return []
        parameters = {**in_scope(scope), **space._asdict(), "identities": list(identities)}
        return (await self._ch.query(f"{_VECTORS} AND {_NAMED}", parameters, settings=self._reads)).rows


def _mark(row: Row | None) -> Mark:
    if row is None:
        return Mark(0, 0, 0)
    changes = [Change(Identity(*change[:3]), change[3], change[4]) for change in row[3]]
    return Mark(row[0], row[1], row[2], changes)
