"""Removes what interrupted writes, updates and deletions leave behind; reads ignore all of it meanwhile."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import tagged
from loom_common.clock import Clock
from loom_common.errors import LoomError
from loom_common.leases import Lease, LeaseLost, Leases
from loom_memory.store.columns import KeyRange
from loom_memory.store.embeddings import EmbeddingRepository
from loom_memory.store.versions import Placed, VersionRepository

logger = logging.getLogger(__name__)

LEASE: Final = "memory.sweep"

# A write that takes longer than this to become visible loses its vectors. Source: chosen, ten times the longest call.
GRACE_NS: Final = 600_000_000_000
_LEASE_S: Final = 60.0
_BATCH: Final = 2_000
# Versions that one statement looks at; their keys are what it holds in memory. Source: chosen, some 10 MB.
_RANGE: Final = 50_000
# Many namespaces have nothing to clear, and each look would otherwise be a renewal.
_RENEW_AFTER_S: Final = _LEASE_S / 4


@dataclass(frozen=True, slots=True)
class Swept:
    """What one pass removed or marked, in versions."""

    embeddings: int = 0
    versions: int = 0
    deletions: int = 0

    def __add__(self, other: "Swept") -> "Swept":
        return Swept(
            self.embeddings + other.embeddings, self.versions + other.versions, self.deletions + other.deletions
        )


class Sweep:
    """One pass over all namespaces, at start and then by the hour, in whichever process holds the lease."""

    def __init__(
        self,
        versions: VersionRepository,
        embeddings: EmbeddingRepository,
        leases: Leases,
        clock: Clock,
        *,
        interval_s: float,
        grace_ns: int = GRACE_NS,
        range_size: int = _RANGE,
        batch_size: int = _BATCH,
    ) -> None:
        self._versions = versions
        self._embeddings = embeddings
        self._leases = leases
        self._clock = clock
        self._interval_s = interval_s
        self._grace_ns = grace_ns
        self._range_size = range_size
        self._batch_size = batch_size

    async def run(self) -> None:
        """Sweeps until it is cancelled."""
        while True:
            with tagged(LEASE):
                try:
                    await self._take_turn()
                except (LoomError, LeaseLost):
                    logger.warning("sweep_interrupted", exc_info=True)
            await asyncio.sleep(self._interval_s)

    async def _take_turn(self) -> None:
        async with self._leases.taken(LEASE, _LEASE_S) as lease:
            if lease is None:
                return
            swept = await self.sweep(lease)
        logger.info(
            "swept",
            extra={"embeddings": swept.embeddings, "versions": swept.versions, "deletions": swept.deletions},
        )

    async def sweep(self, lease: Lease) -> Swept:
        """Removes and marks all there is, namespace by namespace; one that fails is left to the next pass.

        Raises:
            LeaseLost: Another process sweeps now.
            LoomError: The namespaces cannot be read.
        """
        total = Swept()
        renewed = self._clock.monotonic_s()
        for scope in sorted({*await self._versions.scopes(), *await self._embeddings.scopes()}, key=_by_name):
            try:
                async for keys in self._ranges(scope):
                    if self._clock.monotonic_s() - renewed > _RENEW_AFTER_S:
                        await lease.renew()
                        renewed = self._clock.monotonic_s()
                    total += await self._sweep_range(lease, keys)
            except LoomError:
                logger.warning("namespace_not_swept", exc_info=True, extra={"namespace": scope.namespace})
        return total

    async def _ranges(self, scope: Scope) -> AsyncIterator[KeyRange]:
        """Yields ranges that together hold every key."""
        keys = await self._versions.range_after(scope, "", self._range_size)
        while keys.upto:
            yield keys
            keys = await self._versions.range_after(scope, keys.upto, self._range_size)
        yield keys

    async def _sweep_range(self, lease: Lease, keys: KeyRange) -> Swept:
        before = self._clock.now_ns() - self._grace_ns
        now = self._clock.now()
        return Swept(
            embeddings=await _drain(
                lease,
                keys,
                lambda part, limit: self._embeddings.stale(part, before, limit),
                lambda stale: self._embeddings.remove(keys.scope, stale),
                self._batch_size,
            ),
            versions=await _drain(
                lease,
                keys,
                lambda part, limit: self._versions.orphans(part, before, limit),
                lambda orphans: self._versions.remove(keys.scope, orphans),
                self._batch_size,
            ),
            deletions=await _drain(
                lease,
                keys,
                self._versions.unmarked,
                lambda deleted: self._versions.tombstone(keys.scope, deleted, now),
                self._batch_size,
            ),
        )


def _by_name(scope: Scope) -> tuple[str, str]:
    return scope.org, scope.namespace


async def _drain(
    lease: Lease,
    keys: KeyRange,
    find: Callable[[KeyRange, int], Awaitable[list[Placed]]],
    clear: Callable[[Sequence[Placed]], Awaitable[None]],
    size: int,
) -> int:
    """Clears what is found, `size` at a time, and returns how much that was."""
    seen: set[Placed] = set()
    while True:
        batch = await find(keys, size)
        # The store rewrites in the background, so that what was cleared may still be found for a while.
        found = [placed for placed in batch if placed not in seen]
        if found:
            seen.update(found)
            await lease.renew()
            await clear(found)
        if len(batch) < size:
            return len(seen)
        keys = replace(keys, after=_last_whole_key(batch))


def _last_whole_key(batch: Sequence[Placed]) -> str:
    """Returns the last key of which nothing comes behind the batch; the rest of a very long one is left for later."""
    last = batch[-1][0].key
    return next((identity.key for identity, _ in reversed(batch) if identity.key != last), last)
