"""Marks the versions of deleted memories in the background, many deletions in one rewrite of the store."""

import asyncio
import logging
from collections import defaultdict
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import tagged
from loom_common.clock import Clock
from loom_common.errors import LoomError
from loom_common.workers import Workers
from loom_memory.domain.memory import Identity
from loom_memory.store.versions import VersionRepository

logger = logging.getLogger(__name__)

WORKER: Final = "deletions"

# Source: chosen. A rewrite costs as much for a thousand memories as for one, and nothing waits for it: reads hide a
# deleted memory's versions by the deletion itself.
_GATHER_S: Final = 1.0
_BATCH: Final = 1_000


class DeletionMarker:
    """Collects deletions and marks their versions; what a stop or a crash leaves, the sweep marks."""

    def __init__(
        self, versions: VersionRepository, workers: Workers, clock: Clock, *, gather_s: float = _GATHER_S
    ) -> None:
        self._versions = versions
        self._workers = workers
        self._clock = clock
        self._gather_s = gather_s
        self._waiting: dict[Scope, list[tuple[Identity, int]]] = defaultdict(list)
        self._task: asyncio.Task[None] | None = None

    def add(self, scope: Scope, identity: Identity, version: int) -> None:
        """Takes a deletion and returns at once."""
        self._waiting[scope].append((identity, version))
        if self._task is None or self._task.done():
            self._task = self._workers.start(WORKER, self._run())

    async def flush(self) -> None:
        """Marks everything that waits."""
        waiting, self._waiting = self._waiting, defaultdict(list)
        with tagged("memory.deletions"):
            for scope, deleted in waiting.items():
                for first in range(0, len(deleted), _BATCH):
                    await self._mark(scope, deleted[first : first + _BATCH])

    async def close(self) -> None:
        """Marks what waits and stops."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        await self.flush()

    async def _run(self) -> None:
        while self._waiting:
            await asyncio.sleep(self._gather_s)
            await self.flush()

    async def _mark(self, scope: Scope, deleted: list[tuple[Identity, int]]) -> None:
        try:
            await self._versions.tombstone(scope, deleted, self._clock.now())
        except LoomError:
            logger.warning("deletions_not_marked", extra={"memories": len(deleted)})
