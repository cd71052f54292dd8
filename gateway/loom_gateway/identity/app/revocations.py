"""What was ended before its time: kept in memory, read from the database, pushed to whoever follows, with the switches.

A revocation made here is known here, and on its way to every follower, before its caller is answered. One made by
another replica is read within half a second. A follower hears nothing while the database cannot be read, and so knows
that it does not know.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Final, Self

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from loom_common.auth.claims import Claims
from loom_common.auth.revocations import Revocation, RevocationSet
from loom_common.clickhouse import tagged
from loom_common.clock import Clock
from loom_common.errors import BackendUnavailable, LoomError, TokenRevoked
from loom_common.settings import SettingsError
from loom_gateway.identity.app.model_calls import SwitchBoard
from loom_gateway.identity.app.signing import SigningKeys
from loom_gateway.identity.store.revocations import RevocationRepository

POLL_S: Final = 0.5
"""How often other replicas' revocations are read. Source: a quarter of the two seconds that they may take."""
HEARTBEAT_S: Final = 2.0
"""Longest silence towards a follower while the database can be read."""
STALE_S: Final = 30.0
"""Age of the last read from which on callers are refused, as on every service."""

# A row may become visible after one that was recorded later: it was written by a slower replica.
_OVERLAP: Final = timedelta(seconds=60)
_KEYS_EVERY: Final = 20
# A follower that holds expired revocations sheds them with the next snapshot.
_SNAPSHOT_S: Final = 600.0
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Update:
    """What a follower is told; with neither keys nor revocations it is a heartbeat."""

    snapshot: bool = False
    """Whether it replaces all that was told before."""
    jwks: str = ""
    """The public keys; empty where they are unchanged."""
    revocations: tuple[Revocation, ...] = ()
    calls_off: tuple[str, ...] = ()
    """Organisations whose calls to models were switched off, or all that are off in a snapshot."""
    calls_on: tuple[str, ...] = ()
    """Organisations whose calls to models were switched on again."""
    calls_age_s: float | None = None
    """How long ago all switches were read; None where they never were. Units: seconds."""


@dataclass(slots=True, eq=False)
class _Follower:
    pending: list[Revocation] = field(default_factory=list)
    keys_changed: bool = False
    calls_off: frozenset[str] = frozenset()
    woken: asyncio.Event = field(default_factory=asyncio.Event)


class RevocationFeed:
    """Knows every revocation of the deployment; the gateway's own `KeySource` and `RevocationView`.

    An async context manager: it has read all revocations when it is entered, and reads new ones until it is left.
    """

    def __init__(
        self, revocations: RevocationRepository, keys: SigningKeys, switches: SwitchBoard, clock: Clock
    ) -> None:
        self._repository = revocations
        self._keys = keys
        self._switches = switches
        switches.on_change = self._wake
        self._clock = clock
        self._held: dict[tuple[str, str, str], tuple[Revocation, datetime]] = {}
        """The latest of each token, subject and session, and when everything that it ends has expired by itself."""
        self._set = RevocationSet()
        self._newest = _EPOCH
        self._read_at_s = 0.0
        self._followers: set[_Follower] = set()
        self._closed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._read()
        await self._switches.read()
        self._task = asyncio.create_task(self._poll(), name="identity-revocations")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if self._task is not None:
            await self._task

    def __len__(self) -> int:
        return len(self._held)

    def close(self) -> None:
        """Ends every follower's stream and the reading; safe to call twice."""
        self._closed.set()
        self._wake()

    def fresh(self) -> bool:
        """Returns whether the database was read recently enough to say who is revoked."""
        return self._clock.monotonic_s() - self._read_at_s <= STALE_S

    def verification_key(self, kid: str) -> Ed25519PublicKey | None:
        """See `KeySource.verification_key`."""
        self._require_fresh()
        return self._keys.public(kid)

    def check(self, claims: Claims) -> None:
        """See `RevocationView.check`."""
        if self.has_ended(claims):
            raise TokenRevoked("The token was revoked. Make a new one with `loom token create`.")

    def has_ended(self, claims: Claims) -> bool:
        """Returns whether a token was ended before its time.

        Raises:
            BackendUnavailable: Revocations could not be read for so long that nothing can be said.
        """
        self._require_fresh()
        return self._set.revoked(claims)

    async def add(self, revocation: Revocation, *, expires_at: datetime, revoked_by: str) -> None:
        """Stores a revocation and tells every follower.

        Args:
            revocation: What ends.
            expires_at: When everything that it ends has expired by itself.
            revoked_by: Subject that ends it.
        """
        at = datetime.fromtimestamp(revocation.revoked_at, UTC)
        await self._repository.add(revocation, revoked_at=at, expires_at=expires_at, revoked_by=revoked_by)
        self._learn([(revocation, expires_at)])

    async def follow(self) -> AsyncGenerator[Update, None]:
        """Yields a snapshot, then each change at once, and a heartbeat after two seconds of silence.

        Ends when the feed is closed. A heartbeat says that the database was read since the last message.
        """
        follower = _Follower()
        self._followers.add(follower)
        try:
            snapshot_at_s = told_at_s = self._clock.monotonic_s()
            yield self._snapshot(follower)
            while not self._closed.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(HEARTBEAT_S):
                        await follower.woken.wait()
                if self._closed.is_set():
                    return
                now_s = self._clock.monotonic_s()
                if now_s - snapshot_at_s > _SNAPSHOT_S:
                    snapshot_at_s = told_at_s = now_s
                    yield self._snapshot(follower)
                elif follower.woken.is_set() or self._read_at_s > told_at_s:
                    told_at_s = now_s
                    yield self._change(follower)
        finally:
            self._followers.discard(follower)

    def _snapshot(self, follower: _Follower) -> Update:
        self._taken(follower)
        follower.calls_off = off = self._switches.off
        return Update(
            snapshot=True,
            jwks=self._keys.jwks,
            revocations=tuple(revocation for revocation, _ in self._held.values()),
            calls_off=tuple(sorted(off)),
            calls_age_s=self._switches.age_s(),
        )

    def _change(self, follower: _Follower) -> Update:
        pending, keys_changed = self._taken(follower)
        told, off = follower.calls_off, self._switches.off
        follower.calls_off = off
        return Update(
            jwks=self._keys.jwks if keys_changed else "",
            revocations=pending,
            calls_off=tuple(sorted(off - told)),
            calls_on=tuple(sorted(told - off)),
            calls_age_s=self._switches.age_s(),
        )

    def _wake(self) -> None:
        for follower in self._followers:
            follower.woken.set()

    def _taken(self, follower: _Follower) -> tuple[tuple[Revocation, ...], bool]:
        taken = tuple(follower.pending), follower.keys_changed
        follower.pending, follower.keys_changed = [], False
        follower.woken.clear()
        return taken

    def _require_fresh(self) -> None:
        if not self.fresh():
            raise BackendUnavailable(
                "Tokens cannot be verified at the moment: the database cannot be read. Send the call again shortly.",
                detail={"service": "clickhouse"},
                retry_after_s=1.0,
            )

    async def _poll(self) -> None:
        failing = False
        turn = 0
        while not await self._closed_within(POLL_S):
            turn += 1
            error = await self._read_turn(with_keys=turn % _KEYS_EVERY == 0)
            if error is not None and not failing:
                _log.warning("revocations_unread", error=error)
            elif error is None and failing:
                _log.info("revocations_read_again")
            failing = error is not None

    async def _closed_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closed.wait()
        return self._closed.is_set()

    async def _read_turn(self, *, with_keys: bool) -> str | None:
        """Reads once; returns the name of the error that kept it from doing so, or None."""
        try:
            with tagged("identity.revocations -"):
                await self._read()
                if with_keys:
                    await self._read_keys()
                if self._switches.due():
                    await self._switches.read()
        except (LoomError, SettingsError) as error:
            return type(error).__name__
        except Exception as error:  # noqa: BLE001 - see below
            # The last word of the task: if it ended, every caller would be refused until the next start.
            _log.exception("revocations_broken")
            return type(error).__name__
        return None

    async def _read(self) -> None:
        asked_at_s = self._clock.monotonic_s()
        found = await self._repository.since(max(_EPOCH, self._newest - _OVERLAP), self._clock.now())
        self._learn((row.revocation, row.expires_at) for row in found)
        self._newest = max((row.recorded_at for row in found), default=self._newest)
        # What counts is when the question was asked: an answer that took long is old when it comes.
        self._read_at_s = asked_at_s

    async def _read_keys(self) -> None:
        before = self._keys.jwks
        await self._keys.replace_old()
        await self._keys.refresh()
        self.keys_may_have_changed(before)

    def keys_may_have_changed(self, before: str) -> None:
        """Tells every follower of the keys where they are others than the document `before` says."""
        if self._keys.jwks != before:
            for follower in self._followers:
                follower.keys_changed = True
                follower.woken.set()

    def _learn(self, found: Iterable[tuple[Revocation, datetime]]) -> None:
        now = self._clock.now()
        new = [revocation for revocation, expires_at in found if self._is_new(revocation, expires_at)]
        expired = [key for key, (_, expires_at) in self._held.items() if expires_at <= now]
        for key in expired:
            del self._held[key]
        if expired:
            self._set.replace(revocation for revocation, _ in self._held.values())
        elif new:
            self._set.add(*new)
        if new:
            for follower in self._followers:
                follower.pending.extend(new)
                follower.woken.set()

    def _is_new(self, revocation: Revocation, expires_at: datetime) -> bool:
        key = (revocation.kind, revocation.org, revocation.id)
        held = self._held.get(key)
        # The later one ends all that the earlier did: a subject that is ended a thousand times is held once.
        if held is not None and held[0].revoked_at >= revocation.revoked_at:
            return False
        self._held[key] = revocation, max(expires_at, held[1]) if held else expires_at
        return True
