"""Writes that only one of several contenders may do, over a store without compare-and-swap.

"Read the version, write version + 1, read it back" lets several writers win. What holds on a store whose inserts are
visible to every later read:

1.  A contender appends a claim to the next epoch of its name and reads back. It wins only if its claim is the only
    one of that epoch; otherwise it ends its claim and tries again after a random wait. Two never win one epoch.
2.  While the winner's claim is neither ended nor older than its hold, nobody claims the next epoch. A winner that
    knows no bound for its work takes a short hold and claims the same epoch again and again until it ends.
3.  The winner reads what its write depends on after it has won, writes, and then confirms: it has succeeded only if
    its hold had not run out and no later epoch has been claimed. A winner that was paused past its hold may still
    write, but it hears `Conflict`, and its write loses to the later winner's because versions rise with the epoch.

So at most one contender is told that it succeeded for one state of the row, whichever is paused or killed. A loser
that wrote late may be seen for the moment until the later winner has written.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

from loom_common.clickhouse import ClickHouse, Table, own_write_reads
from loom_common.errors import Conflict, LoomError
from loom_common.ids import new_id
from loom_common.local_locks import KeyedLocks

CLAIMS: Final = Table.of(
    "claims",
    quorum=True,
    service="LowCardinality(String)",
    name="String",
    epoch="UInt64",
    token="String",  # noqa: S106  (a column's type)
    done="UInt8",
    hold_ms="UInt32",
)

_LATEST = """
SELECT epoch, token, max(done) AS ended, min(dateDiff('millisecond', at, now64(3)) > hold_ms) AS expired
FROM claims
WHERE service = {service:String} AND name = {name:String} AND epoch = (
    SELECT max(epoch) FROM claims WHERE service = {service:String} AND name = {name:String})
GROUP BY epoch, token
ORDER BY epoch, token
LIMIT 1000
"""

# Source: chosen; the wait of a loser is a few statements long (2 to 10 ms each) and doubles up to a bound.
_FIRST_WAIT_S: Final = 0.005
_LONGEST_WAIT_S: Final = 0.2
# Two renewals may fail before a hold runs out.
_RENEW_AFTER: Final = 0.3
DEFAULT_HOLD_S: Final = 30.0
DEFAULT_WAIT_S: Final = 5.0


def claim_name(*parts: str) -> str:
    """Joins the parts of an identity into one name; length-prefixed, so that no two identities share a name."""
    return "".join(f"{len(part)}:{part}" for part in parts)


@dataclass(frozen=True, slots=True)
class _Claim:
    epoch: int
    token: str
    ended: bool
    expired: bool


class Hold:
    """A won claim: the right to read, decide and write what its name stands for, until it runs out."""

    def __init__(self, claims: "Claims", name: str, epoch: int, token: str, hold_ms: int) -> None:
        self._claims = claims
        self.name = name
        self.epoch = epoch
        self.token = token
        self.hold_ms = hold_ms

    def version_after(self, version_read: int) -> int:
        """Returns the version to write with: above the row read, and above a stale holder's of the same row."""
        return version_read + self.epoch

    async def confirm(self) -> None:
        """Returns if everything written so far under this hold stands. Call it after the write, before saying so.

        Raises:
            Conflict: The hold had run out, so that another may have written since the read.
        """
        await self._claims.confirm(self)


class Claims:
    """Draws holds for one service. Contenders of this process queue up first and never meet in the store."""

    def __init__(self, ch: ClickHouse, service: str) -> None:
        self._ch = ch
        self._service = service
        self._local = KeyedLocks()

    @asynccontextmanager
    async def hold(
        self, name: str, *, hold_s: float = DEFAULT_HOLD_S, wait_s: float = DEFAULT_WAIT_S, renewed: bool = False
    ) -> AsyncIterator[Hold]:
        """Holds `name` for the block.

        Args:
            name: What is held.
            hold_s: How long, at most; also how long others wait where this process dies.
            wait_s: How long to wait for others.
            renewed: Whether to hold on while the block runs. Otherwise `hold_s` must be longer than it can take.

        Raises:
            Conflict: Others held it for all of `wait_s`.
        """
        async with self._alone(name, wait_s):
            hold = await self._win(name, round(hold_s * 1000), wait_s)
            renewing = asyncio.create_task(self._keep(hold)) if renewed else None
            try:
                yield hold
            finally:
                if renewing is not None:
                    # Its last renewal may not come after the end.
                    renewing.cancel()
                    await asyncio.wait({renewing})
                await asyncio.shield(self._end(hold))

    async def confirm(self, hold: Hold) -> None:
        """See `Hold.confirm`."""
        latest = await self._latest(hold.name)
        own = [claim for claim in latest if claim.token == hold.token]
        if not own or own[0].expired:
            raise Conflict("The write took too long and another may have come between; read again and decide.")

    async def _win(self, name: str, hold_ms: int, wait_s: float) -> Hold:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        wait = _FIRST_WAIT_S
        while True:
            latest = await self._latest(name)
            if all(claim.ended or claim.expired for claim in latest):
                epoch = latest[0].epoch + 1 if latest else 1
                hold = Hold(self, name, epoch, new_id(), hold_ms)
                if await self._claim(hold):
                    return hold
            if loop.time() >= deadline:
                raise Conflict("Others are writing the same; read again and decide.")
            await asyncio.sleep(random.uniform(wait / 2, wait))  # noqa: S311  (spreads contenders; no secret)
            wait = min(wait * 2, _LONGEST_WAIT_S)

    async def _claim(self, hold: Hold) -> bool:
        try:
            await self._append(hold, done=False)
            seen = await self._latest(hold.name)
            won = [claim.token for claim in seen] == [hold.token] and not seen[0].expired
        except (LoomError, asyncio.CancelledError):
            # It may have been stored: end it, or the name waits for the hold to run out.
            await asyncio.shield(self._end(hold))
            raise
        if not won:
            await self._end(hold)
        return won

    async def _latest(self, name: str) -> list[_Claim]:
        rows = await self._ch.query(
            _LATEST, {"service": self._service, "name": name}, settings=own_write_reads(self._ch)
        )
        return [_Claim(epoch, token, bool(ended), bool(expired)) for epoch, token, ended, expired in rows]

    async def _append(self, hold: Hold, *, done: bool) -> None:
        await self._ch.insert(CLAIMS, [(self._service, hold.name, hold.epoch, hold.token, int(done), hold.hold_ms)])

    async def _end(self, hold: Hold) -> None:
        try:
            await self._append(hold, done=True)
        except LoomError:
            # The hold runs out by itself; the block's own outcome must not change for this.
            return

    async def _keep(self, hold: Hold) -> None:
        while True:
            await asyncio.sleep(hold.hold_ms / 1000 * _RENEW_AFTER)
            # The next one may succeed; who must know whether the hold stood confirms it.
            with suppress(LoomError):
                await self._append(hold, done=False)

    @asynccontextmanager
    async def _alone(self, name: str, wait_s: float) -> AsyncIterator[None]:
        """Lets one contender of this process at a time go on to the store."""
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self._local.one(name, wait_s=wait_s))
            except TimeoutError:
                raise Conflict("Others are writing the same; read again and decide.") from None
            yield
