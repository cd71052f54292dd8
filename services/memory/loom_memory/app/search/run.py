"""One search under way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_memory.app.embedding import ServedModel
from loom_memory.app.search.legs import Evidence
from loom_memory.app.search.ports import MemoryRows, NamedRows, Vectors
from loom_memory.app.search.query import SearchQuery
from loom_memory.app.thresholds import Thresholds
from loom_memory.domain.intents import Intent
from loom_memory.domain.memory import Identity
from loom_memory.domain.names import NOTHING_NAMED, NamedExactly
from loom_memory.domain.query_cues import QueryCues
from loom_memory.domain.recipes import Weights
from loom_memory.domain.signals import Use
from loom_memory.domain.time_phrases import TimePhrase
from loom_memory.store.embeddings import VectorHit
from loom_memory.store.memories import Statistics

# A memory comes with several rows where it is long or its key says something, and superseded or deleted ones come too.
_SCAN_FACTOR: Final = 2
SCAN_EXTRA: Final = 20

WIDE_POOL: Final = 400
"""Rows to take from each leg where matches beyond the first are wanted. Source: chosen; a list of more is no search."""


@dataclass(frozen=True, slots=True)
class SearchRun:
    """One search under way; versions up to `settled` were stored before it began.

    Attributes:
        rows: Memories as they are at the moment that is asked about.
        vectors: Their vectors.
        legs: Finds them by their keys, tags and times.
        served: The model that compares meanings; None where words alone count.
        thresholds: Gates in force; None where words alone count.
        now: Moment that is asked about.
        times: Times that the question names.
        only_time: Whether the question names a time and no topic.
        is_past: Whether the moment is another than the present.
        unsearched: Memories as they were that are too many to be compared by meaning.
        uses: How memories were used.
    """

    scope: Scope
    query: SearchQuery
    rows: MemoryRows
    vectors: Vectors
    legs: NamedRows
    cues: QueryCues
    statistics: Statistics
    now: datetime
    settled: int
    pool: int
    weights: Weights
    served: ServedModel | None = None
    thresholds: Thresholds | None = None
    intent: Intent = Intent.LOOKUP
    names: NamedExactly = NOTHING_NAMED
    times: tuple[TimePhrase, ...] = ()
    only_time: bool = False
    is_past: bool = False
    unsearched: int = 0
    uses: Mapping[Identity, Use] = field(default_factory=dict)

    @property
    def noise_floor(self) -> float:
        """Cosine at or under which two texts count as unrelated."""
        return self.thresholds.noise_floor if self.thresholds else 0.0

    @property
    def scan_limit(self) -> int:
        """Chunks that a plain scan returns."""
        return self.pool * _SCAN_FACTOR + SCAN_EXTRA

    def may_lack(self, near: Sequence[VectorHit], evidence: Mapping[Identity, Evidence]) -> bool:
        """Says whether a plain scan was filled so much with what is not shown that hits may lie behind it."""
        if len(near) < self.scan_limit or self.query.wanted.is_beyond_identity:
            return False
        return sum(known.is_near for known in evidence.values()) < max(self.pool // 2, self.query.top_k)
