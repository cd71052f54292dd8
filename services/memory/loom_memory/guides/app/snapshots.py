"""What is computed of a namespace once for each span of time, and read the same by everybody until the next.

The first reader of a namespace waits for what is computed. Later ones read the span before while the new one is
computed beside them, so that no reader waits twice.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Final, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from loom_common.call import Scope
from loom_common.clickhouse import tagged
from loom_common.clock import Clock
from loom_common.conditional_writes import Claims, claim_name
from loom_common.errors import Conflict, LoomError
from loom_common.local_locks import KeyedLocks
from loom_common.workers import Workers
from loom_memory.domain.memory import to_milliseconds
from loom_memory.guides.store.snapshots import Snapshot, SnapshotRepository

logger = logging.getLogger(__name__)

WORKER: Final = "namespace_snapshots"
# Source: chosen. Longer than the statements of the largest namespace take; another process then computes it.
_HOLD_S: Final = 60.0
_WAIT_S: Final = 5.0

Body = TypeVar("Body", bound=BaseModel)


class Named(NamedTuple):
    """The users and keys that a snapshot names, by which an erasure finds it."""

    users: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()


class Snapshots(Generic[Body]):
    """Snapshots of one kind.

    Args:
        kind: What is computed.
        ttl_s: Length of a span. Units: seconds. 0 computes and reads nothing.
        body: Type of what is computed.
        compute: Computes it for a namespace at a moment.
        named: Says which users and keys it names.
        claims: Puts processes in order; None where this one is alone.
    """

    def __init__(
        self,
        kind: str,
        ttl_s: int,
        body: type[Body],
        compute: Callable[[Scope, datetime], Awaitable[Body]],
        named: Callable[[Body], Named],
        snapshots: SnapshotRepository,
        clock: Clock,
        workers: Workers,
        claims: Claims | None,
    ) -> None:
        self._kind = kind
        self._ttl_s = ttl_s
        self._body = body
        self._compute = compute
        self._named = named
        self._snapshots = snapshots
        self._clock = clock
        self._workers = workers
        self._claims = claims
        self._locks = KeyedLocks()
        self._computing: set[Scope] = set()

    @property
    def is_on(self) -> bool:
        """Whether anything is computed."""
        return self._ttl_s > 0

    async def latest(self, scope: Scope) -> Body | None:
        """Returns the snapshot that counts now; None where none is computed.

        Raises:
            LoomError: The store did not answer.
        """
        if not self.is_on:
            return None
        bucket = self._bucket()
        kept = await self._read(scope, bucket)
        if kept is None:
            return await self._computed(scope, bucket)
        if kept[0] < bucket and scope not in self._computing:
            self._computing.add(scope)
            self._workers.start(WORKER, self._refresh(scope, bucket))
        return kept[1]

    def _bucket(self) -> int:
        now_s = self._clock.now_ns() // 1_000_000_000
        return now_s - now_s % self._ttl_s

    async def _read(self, scope: Scope, bucket: int) -> tuple[int, Body] | None:
        """Returns the snapshot of a span or of the one before it."""
        found = await self._snapshots.latest(scope, [self._kind], bucket - self._ttl_s, bucket)
        snapshot = found.get(self._kind)
        if snapshot is None:
            return None
        try:
            return snapshot.bucket, self._body.model_validate_json(snapshot.body)
        except ValidationError:
            # Written by a build that had other rules.
            return None

    async def _refresh(self, scope: Scope, bucket: int) -> None:
        try:
            with tagged(f"{WORKER}.{self._kind}"):
                await self._computed(scope, bucket)
        except LoomError as error:
            logger.warning("namespace_snapshot_failed", extra={"kind": self._kind, "reason": error.reason.value})
        finally:
            self._computing.discard(scope)

    async def _computed(self, scope: Scope, bucket: int) -> Body:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._locks.one(scope))
            if self._claims is not None:
                name = claim_name("namespace_snapshot", self._kind, scope.org, scope.namespace)
                try:
                    await stack.enter_async_context(self._claims.hold(name, hold_s=_HOLD_S, wait_s=_WAIT_S))
                except Conflict:
                    logger.info("namespace_snapshot_computed_twice", extra={"kind": self._kind})
            kept = await self._read(scope, bucket)
            if kept is not None and kept[0] == bucket:
                return kept[1]
            now = to_milliseconds(self._clock.now())
            body = await self._compute(scope, now)
            named = self._named(body)
            await self._snapshots.insert(
                scope,
                Snapshot(self._kind, bucket, body.model_dump_json()),
                users=named.users,
                keys=named.keys,
                computed_at=now,
                version=self._clock.now_ns(),
            )
            # Where two computed it after all, the first counts for both.
            kept = await self._read(scope, bucket)
            return body if kept is None else kept[1]
