"""What a search reads its memories by, and the legs and signals that others supply."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from loom_common.call import Scope
from loom_memory.domain.analyzer import AnalyzedQuery
from loom_memory.domain.findings import Traits
from loom_memory.domain.memory import Filter, Identity, Memory, Sketch
from loom_memory.domain.names import NamedExactly
from loom_memory.domain.narrowing import Span
from loom_memory.domain.signals import Use
from loom_memory.store.embeddings import QueryVector, VectorHit
from loom_memory.store.legs import NamedHit
from loom_memory.store.memories import LexicalHit, Neighbour, Statistics


class MemoryRows(Protocol):
    """Reads memories as a search needs them; `MemoryRepository` says what each method returns."""

    async def statistics(self, scope: Scope, wanted: Filter, now: datetime) -> Statistics:
        """See `MemoryRepository.statistics`."""
        ...

    async def lexical(
        self, scope: Scope, wanted: Filter, now: datetime, query: AnalyzedQuery, statistics: Statistics, limit: int
    ) -> list[LexicalHit]:
        """See `MemoryRepository.lexical`."""
        ...

    async def sketches(
        self, scope: Scope, wanted: Filter, identities: Sequence[Identity], now: datetime
    ) -> dict[Identity, Sketch]:
        """See `MemoryRepository.sketches`."""
        ...

    async def fetch(
        self, scope: Scope, wanted: Filter, identities: Sequence[Identity], now: datetime
    ) -> dict[Identity, Memory]:
        """See `MemoryRepository.fetch`."""
        ...

    async def neighbours(
        self, scope: Scope, wanted: Filter, now: datetime, seeds: Sequence[Identity], statistics: Statistics
    ) -> list[Neighbour]:
        """See `MemoryRepository.neighbours`."""
        ...


class Vectors(Protocol):
    """Compares vectors; `EmbeddingRepository` says what each method returns."""

    async def nearest(self, scope: Scope, wanted: Filter, query: QueryVector, limit: int) -> list[VectorHit]:
        """See `EmbeddingRepository.nearest`."""
        ...

    async def nearest_live(
        self, scope: Scope, wanted: Filter, now: datetime, query: QueryVector, limit: int
    ) -> list[VectorHit]:
        """See `EmbeddingRepository.nearest_live`."""
        ...

    async def cosines(
        self, scope: Scope, query: QueryVector, identities: Sequence[Identity]
    ) -> dict[tuple[Identity, int], float]:
        """See `EmbeddingRepository.cosines`."""
        ...


class NamedRows(Protocol):
    """Finds memories by what a question names; `LegRepository` says what each method returns."""

    async def named(
        self, scope: Scope, wanted: Filter, now: datetime, names: NamedExactly, limit: int
    ) -> list[NamedHit]:
        """See `LegRepository.named`."""
        ...

    async def within(self, scope: Scope, wanted: Filter, now: datetime, span: Span, limit: int) -> list[Identity]:
        """See `LegRepository.within`."""
        ...

    async def traits(self, scope: Scope, wanted: Filter, now: datetime, identities: Sequence[Identity]) -> list[Traits]:
        """See `LegRepository.traits`."""
        ...


class EntityLeg(Protocol):
    """Finds memories by the people and things that they are about."""

    async def find(
        self, scope: Scope, wanted: Filter, text: str, names: Sequence[str], limit: int
    ) -> Mapping[Identity, float]:
        """Returns memories about what `text` or `names` name, with how surely, over 0 to 1; at most `limit`.

        Args:
            scope: Namespace.
            wanted: Of it only user and session need count: what is found is checked against the rest.
            text: The question.
            names: Names that were read from it already.
            limit: Most memories to return, surest first, then by identity.
        """
        ...


class Reinforcement(Protocol):
    """Knows how memories were used."""

    async def uses(self, scope: Scope) -> Mapping[Identity, Use]:
        """Returns the use of each memory of the namespace that was used at all; may be a minute old. Never raises."""
        ...
