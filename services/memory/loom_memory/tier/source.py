"""What the tier needs of the database."""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from loom_common.call import Scope
from loom_common.clickhouse import Row
from loom_memory.domain.memory import Identity
from loom_memory.domain.vectors import VectorSpace
from loom_memory.store.tier_rows import Mark, NamespaceSize


class TierSource(Protocol):
    """Reads namespaces; `store.tier_rows.TierRows` says what each row holds."""

    async def size(self, scope: Scope, space: VectorSpace) -> NamespaceSize:
        """Returns about how much a namespace holds."""
        ...

    def rows(self, scope: Scope) -> AsyncGenerator[Sequence[Row], None]:
        """Yields every row of memories in blocks, deleted ones included."""
        ...

    def vectors(self, scope: Scope, space: VectorSpace) -> AsyncGenerator[Sequence[Row], None]:
        """Yields the vectors of every version in blocks."""
        ...

    async def marks(
        self, scope: Scope, space: VectorSpace, *, rows_after: int, vectors_after: int
    ) -> tuple[Mark, Mark]:
        """Returns the state of memories and of vectors, with the changes behind these versions."""
        ...

    async def rows_of(self, scope: Scope, identities: Sequence[Identity]) -> Sequence[Row]:
        """Returns the rows of these."""
        ...

    async def vectors_of(self, scope: Scope, space: VectorSpace, identities: Sequence[Identity]) -> Sequence[Row]:
        """Returns the vectors of these."""
        ...
