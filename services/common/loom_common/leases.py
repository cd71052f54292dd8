"""Leases: one holder of a name at a time, with a fencing token that rises from tenure to tenure.

Taking a lease is a conditional write (see `conditional_writes`). Renewing is a plain one, made safe by reading after
writing on both sides: a renewal that crosses a take-over is seen by one of the two, which then gives way. Time is the
database's own, so holders need not agree on theirs. A paused holder wakes up believing in its lease: `check` before
each write that must be its own alone, and put `fence` into the rows where a late write must lose.
"""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

from loom_common.clickhouse import ClickHouse, own_write_reads
from loom_common.conditional_writes import Claims, Hold, claim_name
from loom_common.errors import BackendUnavailable, Conflict, LoomError
from loom_common.ids import new_id

logger = logging.getLogger(__name__)

# Source: chosen; taking a lease is five statements, so this is long, and short beside any lease.
_TAKE_HOLD_S: Final = 10.0
_TAKE_WAIT_S: Final = 2.0
_RETRY_S: Final = 0.25

_TOP = """
SELECT fence, holder, released, expires_at > now64(3) AS running
FROM leases FINAL
WHERE service = {service:String} AND name = {name:String}
ORDER BY fence DESC
LIMIT 2
"""

_TAKE = """
INSERT INTO leases (service, name, fence, holder, expires_at, released, version)
SELECT {service:String}, {name:String}, {fence:UInt64}, {holder:String},
    now64(3) + toIntervalMillisecond({ttl_ms:UInt32}), 0, {version:UInt64}
"""

# Only while it runs: an expired lease may be on its way to another, so it is never revived.
_RENEW = """
INSERT INTO leases (service, name, fence, holder, expires_at, released, version)
SELECT service, name, fence, holder, now64(3) + toIntervalMillisecond({ttl_ms:UInt32}), 0, {version:UInt64}
FROM leases FINAL
WHERE service = {service:String} AND name = {name:String} AND fence = {fence:UInt64}
    AND released = 0 AND expires_at > now64(3)
"""

_RELEASE = """
INSERT INTO leases (service, name, fence, holder, expires_at, released, version)
SELECT {service:String}, {name:String}, {fence:UInt64}, {holder:String}, now64(3), 1, {version:UInt64}
"""


class LeaseLost(Exception):
    """The lease ran out or went to another; what it protected must not be written."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the lease {name!r} is no longer held")
        self.name = name


@dataclass(frozen=True, slots=True)
class _Tenure:
    fence: int
    holder: str
    released: bool
    running: bool

    @property
    def free(self) -> bool:
        return self.released or not self.running


class Lease:
    """One tenure of a name."""

    def __init__(self, leases: "Leases", name: str, fence: int, ttl_s: float, holder: str) -> None:
        self._leases = leases
        self._version = 1
        self._lock = asyncio.Lock()
        self.name = name
        self.fence = fence
        self.ttl_s = ttl_s
        self.holder = holder

    async def renew(self) -> None:
        """Starts the lease's time again.

        Raises:
            LeaseLost: It had run out, or another has it.
        """
        async with self._lock:
            self._version += 1
            await self._leases.renew(self, self._version)

    async def check(self) -> None:
        """Asks the store whether this is still the current tenure and still running.

        Raises:
            LeaseLost: It is not.
        """
        await self._leases.check(self)

    async def release(self) -> None:
        """Ends the tenure, so that another can begin at once."""
        async with self._lock:
            self._version += 1
            await self._leases.release(self, self._version)


class Leases:
    """Takes leases for one process of one service."""

    def __init__(self, ch: ClickHouse, service: str, holder: str | None = None) -> None:
        """Takes the store.

        Args:
            ch: Where leases are kept.
            service: Marks the rows; names of different services never meet.
            holder: Who this is, for people who read the table. Default: host and process, and a unique part.
        """
        self._ch = ch
        self._service = service
        self._claims = Claims(ch, service)
        self.holder = holder or f"{socket.gethostname()}/{os.getpid()}/{new_id()}"

    async def acquire(self, name: str, ttl_s: float, *, note: str = "") -> Lease | None:
        """Takes the lease for `ttl_s` seconds, or returns None when another has it or takes it now.

        Who takes it sees to its end; `taken` does.

        Args:
            name: The lease.
            ttl_s: Time after which it runs out, unless it is renewed.
            note: Stands beside the holder, for people whom `holder_of` tells.
        """
        try:
            async with self._claims.hold(claim_name("lease", name), hold_s=_TAKE_HOLD_S, wait_s=_TAKE_WAIT_S) as hold:
                return await self._take(hold, name, ttl_s, f"{self.holder} {note}".strip())
        except Conflict:
            return None

    @asynccontextmanager
    async def taken(
        self, name: str, ttl_s: float, *, wait_s: float = 0.0, renewed: bool = False, note: str = ""
    ) -> AsyncIterator[Lease | None]:
        """Has the lease for the block and ends it behind; None where another has it.

        Args:
            name: The lease.
            ttl_s: See `acquire`.
            wait_s: How long to wait while another has it.
            renewed: Whether it is renewed while the block runs; otherwise the block does that, or is shorter.
            note: See `acquire`.
        """
        lease = await self._wait(name, ttl_s, wait_s, note)
        renewing = asyncio.create_task(self._keep(lease)) if renewed and lease is not None else None
        try:
            yield lease
        finally:
            if renewing is not None:
                renewing.cancel()
                with suppress(asyncio.CancelledError):
                    await renewing
            if lease is not None:
                with suppress(LoomError):
                    await lease.release()

    @asynccontextmanager
    async def held(self, name: str, ttl_s: float, *, wait_s: float) -> AsyncIterator[Lease]:
        """Holds the lease for the block and renews it meanwhile, after waiting for it for up to `wait_s`.

        Raises:
            BackendUnavailable: Another held it all the time.
        """
        async with self.taken(name, ttl_s, wait_s=wait_s, renewed=True) as lease:
            if lease is None:
                raise BackendUnavailable("Another process holds what this one needs; try again shortly.")
            yield lease

    async def holder_of(self, name: str) -> str | None:
        """Returns who has the lease now, and what they noted beside it; None where nobody has."""
        return next((tenure.holder for tenure in await self._tenures(name) if not tenure.free), None)

    async def renew(self, lease: Lease, version: int) -> None:
        """See `Lease.renew`."""
        await self._ch.command(_RENEW, {**self._key(lease), "ttl_ms": round(lease.ttl_s * 1000), "version": version})
        await self.check(lease)

    async def check(self, lease: Lease) -> None:
        """See `Lease.check`."""
        tenures = await self._tenures(lease.name)
        if not tenures or tenures[0].fence != lease.fence or tenures[0].free:
            raise LeaseLost(lease.name)

    async def release(self, lease: Lease, version: int) -> None:
        """See `Lease.release`."""
        await self._ch.command(_RELEASE, {**self._key(lease), "holder": lease.holder, "version": version})

    async def _take(self, hold: Hold, name: str, ttl_s: float, holder: str) -> Lease | None:
        before = next(iter(await self._tenures(name)), None)
        if before is not None and not before.free:
            return None
        fence = hold.version_after(before.fence if before else 0)
        lease = Lease(self, name, fence, ttl_s, holder)
        await self._ch.command(
            _TAKE, {**self._key(lease), "holder": holder, "ttl_ms": round(ttl_s * 1000), "version": 1}
        )
        try:
            await hold.confirm()
        except Conflict:
            await lease.release()
            raise
        after = await self._tenures(name)
        # The tenure before may have been renewed in the last moment of its time; then it stands.
        crossed = any(tenure.fence != fence and not tenure.free for tenure in after)
        if crossed or not after or after[0].fence != fence:
            await lease.release()
            return None
        return lease

    async def _wait(self, name: str, ttl_s: float, wait_s: float, note: str) -> Lease | None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        while (lease := await self.acquire(name, ttl_s, note=note)) is None:
            if loop.time() >= deadline:
                return None
            await asyncio.sleep(_RETRY_S)
        return lease

    async def _keep(self, lease: Lease) -> None:
        while True:
            await asyncio.sleep(lease.ttl_s / 3)
            try:
                await lease.renew()
            except LeaseLost:
                logger.warning("lease_lost", extra={"lease": lease.name, "fence": lease.fence})
                return
            except LoomError:
                # The next check or renewal finds out; the lease may still be ours.
                logger.warning("lease_not_renewed", extra={"lease": lease.name, "fence": lease.fence})

    async def _tenures(self, name: str) -> list[_Tenure]:
        rows = await self._ch.query(_TOP, {"service": self._service, "name": name}, settings=own_write_reads(self._ch))
        return [_Tenure(fence, holder, bool(released), bool(running)) for fence, holder, released, running in rows]

    def _key(self, lease: Lease) -> dict[str, object]:
        return {"service": self._service, "name": lease.name, "fence": lease.fence}
