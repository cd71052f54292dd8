"""How many memories wait for their vectors, kept for seconds."""

from typing import Final

import cachetools

from loom_common.call import Scope
from loom_common.clock import Clock
from loom_memory.domain.memory import Filter
from loom_memory.domain.vectors import VectorSpace
from loom_memory.store.rewrites import VectorRewrites

# Source: chosen. A number that falls while a run goes on is fresh enough after this; in a namespace of 100,000 memories
# one search in these seconds waits up to 0.1 s for it (measured 2026-11-30, two cores).
_KEPT_S: Final = 5.0
# From none to some it comes only by a change of the embedder, which restarts processes, and by stubs.
_NONE_KEPT_S: Final = 60.0
_MAX_KEPT: Final = 4_096

_Key = tuple[Scope, str | None, str | None, VectorSpace]


class PendingVectors:
    """Counts the memories that no search by meaning finds yet."""

    def __init__(self, rewrites: VectorRewrites, clock: Clock) -> None:
        self._rewrites = rewrites
        self._clock = clock
        self._some: cachetools.TTLCache[_Key, int] = cachetools.TTLCache(_MAX_KEPT, _KEPT_S, clock.monotonic_s)
        self._none: cachetools.TTLCache[_Key, None] = cachetools.TTLCache(_MAX_KEPT, _NONE_KEPT_S, clock.monotonic_s)

    async def count(self, scope: Scope, wanted: Filter, space: VectorSpace) -> int:
        """Returns how many wait of the filter's user and session; of it only these two count.

        A memory without any row of vectors is not looked for where all rows are of the space: the embedding worker
        gives it one.
        """
        key = scope, wanted.user_id, wanted.session_id, space
        if key in self._none:
            return 0
        kept = self._some.get(key)
        if kept is not None:
            return kept
        # Reads no vectors and no memories, and is the whole work wherever all vectors are of one model.
        present = await self._rewrites.present(scope, wanted, space)
        count = await self._rewrites.waiting(scope, wanted, self._clock.now(), space) if present.others else 0
        if count:
            self._some[key] = count
        else:
            self._none[key] = None
        return count

    async def is_all_of_another_model(self, scope: Scope, wanted: Filter, space: VectorSpace) -> bool:
        """Says whether there are vectors, and none of the space."""
        present = await self._rewrites.present(scope, wanted, space)
        return not present.wanted and present.other_vectors > 0

    def stubbed(self, scope: Scope) -> None:
        """Notices that this process stored a stub: none is not none any more."""
        for key in [key for key in self._none if key[0] == scope]:
            self._none.pop(key, None)
