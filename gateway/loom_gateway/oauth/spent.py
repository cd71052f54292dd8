"""What may be used once: codes and refresh tokens, on every replica together."""

from datetime import UTC, datetime
from typing import Protocol

from loom_common.clock import Clock
from loom_common.conditional_writes import Claims, claim_name
from loom_common.errors import Conflict
from loom_gateway.oauth.store import Use, UseRepository


class Spent(Protocol):
    """Remembers what was used."""

    async def spend(self, name: str, *, org: str, until_s: float) -> bool:
        """Returns whether this is the first use.

        Args:
            name: What is used.
            org: Organisation that it is of.
            until_s: Until when it must be remembered. Units: seconds since 1970, UTC.

        Raises:
            LoomError: It cannot be known now.
        """
        ...


class FakeSpent:
    """Remembers in memory."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    async def spend(self, name: str, *, org: str, until_s: float) -> bool:
        """See `Spent.spend`."""
        first = name not in self._used
        self._used.add(name)
        return first


class StoredSpent:
    """Remembers in the database; of two uses at one time, one at most is the first.

    Args:
        writes: Draws claims.
        uses: Keeps what was used.
        clock: Time.
    """

    def __init__(self, writes: Claims, uses: UseRepository, clock: Clock) -> None:
        self._writes = writes
        self._uses = uses
        self._clock = clock

    async def spend(self, name: str, *, org: str, until_s: float) -> bool:
        """See `Spent.spend`."""
        try:
            async with self._writes.hold(claim_name("oauth", name)) as hold:
                if await self._uses.is_known(name):
                    return False
                expires_at = datetime.fromtimestamp(until_s, UTC)
                await self._uses.add(Use(org, name, self._clock.now(), expires_at))
                await hold.confirm()
        except Conflict:
            return False
        return True
