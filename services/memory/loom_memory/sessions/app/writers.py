"""Lets one writer at a time change what is filed under a name."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from loom_common.call import Scope
from loom_common.clock import Clock, MonotonicVersions
from loom_common.conditional_writes import Claims, Hold, claim_name
from loom_common.local_locks import KeyedLocks


class Writing:
    """One writer's turn."""

    def __init__(self, versions: MonotonicVersions, hold: Hold | None) -> None:
        self._versions = versions
        self._hold = hold

    def version(self) -> int:
        """Returns the number of a row: above that of every row that an earlier writer stored."""
        number = self._versions.next()
        return number if self._hold is None else self._hold.version_after(number)


class Writers:
    """Puts the writers of one kind of thing in order.

    Args:
        kind: What is written, such as `working`.
        claims: Puts writers of several processes in order; None where this process alone writes.
    """

    def __init__(self, kind: str, clock: Clock, claims: Claims | None) -> None:
        self._kind = kind
        self._claims = claims
        self._locks = KeyedLocks()
        self._versions = MonotonicVersions(clock)

    @asynccontextmanager
    async def alone(self, scope: Scope, *name: str) -> AsyncIterator[Writing]:
        """Holds a name for the block.

        Raises:
            Conflict: Another process took the name over meanwhile; at the end of the block.
        """
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._locks.one((scope, name)))
            hold = None
            if self._claims is not None:
                claim = claim_name(self._kind, scope.org, scope.namespace, *name)
                hold = await stack.enter_async_context(self._claims.hold(claim))
            yield Writing(self._versions, hold)
            if hold is not None:
                await hold.confirm()
