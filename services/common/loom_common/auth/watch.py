"""Follows identity's keys and revocations, so that a token ended anywhere ends here within two seconds."""

import asyncio
import contextlib
import random
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self, cast

import grpc.aio
import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from loom.identity.v1 import directory_pb2, directory_pb2_grpc
from loom_common.auth.claims import Claims
from loom_common.auth.revocations import REVOCATION_KINDS, Revocation, RevocationKind, RevocationSet
from loom_common.auth.tokens import parse_jwks
from loom_common.auth.verifier import kept_keys
from loom_common.clock import Clock, SystemClock
from loom_common.errors import BackendUnavailable, LoomError, TokenRevoked
from loom_common.model_calls.switch import SwitchCopy

# Identity sends a heartbeat every five seconds; two may be lost before the stream counts as dead.
_SILENCE_S: Final = 12.0
_STALE_S: Final = 30.0
# A restart of identity is over by then; a longer loss shows on health while callers are still verified.
_LOST_S: Final = 3.0
# The longest wait keeps a revocation within its two seconds once identity answers again.
_FIRST_WAIT_S: Final = 0.05
_LONGEST_WAIT_S: Final = 1.0
_RETRY_AFTER_S: Final = 1.0

_log = structlog.get_logger(__name__)


class IdentityWatch:
    """Keys, revocations and switches as identity streams them; refuses callers after 30 seconds of silence.

    An async context manager: the stream is read while it is entered.
    """

    def __init__(self, channel: grpc.aio.Channel, clock: Clock | None = None) -> None:
        self._stub = directory_pb2_grpc.DirectoryServiceStub(channel)
        self._clock = clock or SystemClock()
        self.org_switch = SwitchCopy(self._clock)
        """Which organisations switched their calls to models off."""
        self._keys: dict[str, Ed25519PublicKey] = {}
        self._revocations = RevocationSet()
        self._heard_at_s: float | None = None
        self._lost_at_s: float | None = None
        self._snapshot_read = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._follow(), name="identity-watch")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def ready(self) -> bool:
        """Returns whether callers can be verified now."""
        return self._heard_at_s is not None and self._clock.monotonic_s() - self._heard_at_s <= _STALE_S

    def following(self) -> bool:
        """Returns whether identity is heard now; callers are verified for a while after it is not."""
        lost = self._lost_at_s is not None and self._clock.monotonic_s() - self._lost_at_s > _LOST_S
        return self.ready() and not lost

    async def wait_ready(self, timeout_s: float) -> bool:
        """Waits for the first snapshot, at most `timeout_s`; returns whether callers can be verified now."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._snapshot_read.wait()
        return self.ready()

    def verification_key(self, kid: str) -> Ed25519PublicKey | None:
        """See `KeySource.verification_key`."""
        self._require_fresh()
        return self._keys.get(kid)

    def check(self, claims: Claims) -> None:
        """See `RevocationView.check`."""
        self._require_fresh()
        if self._revocations.revoked(claims):
            raise TokenRevoked("The token was revoked. Make a new one with `loom token create`.")

    def _require_fresh(self) -> None:
        if not self.ready():
            raise BackendUnavailable(
                "Tokens cannot be verified at the moment: identity cannot be reached. Send the call again shortly.",
                detail={"service": "identity"},
                retry_after_s=_RETRY_AFTER_S,
            )

    async def _follow(self) -> None:
        wait_s = _FIRST_WAIT_S
        while True:
            heard_before = self._heard_at_s
            try:
                await self._read_stream()
                _log.info("identity_watch_ended")
            except LoomError as error:
                _log.warning("identity_watch_lost", reason=error.reason.value)
            except TimeoutError:
                _log.warning("identity_watch_silent", silence_s=_SILENCE_S)
            except ValueError:
                _log.exception("identity_watch_unreadable")
            if self._lost_at_s is None:
                self._lost_at_s = self._clock.monotonic_s()
            wait_s = _FIRST_WAIT_S if self._heard_at_s != heard_before else min(wait_s * 2, _LONGEST_WAIT_S)
            # Jitter spreads the replicas, which all lose identity at the same moment.
            await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))  # noqa: S311 - not a secret

    async def _read_stream(self) -> None:
        call = self._stub.WatchRevocations(directory_pb2.WatchRevocationsRequest())
        parts: list[directory_pb2.WatchRevocationsResponse] = []
        try:
            messages = aiter(call)
            while True:
                async with asyncio.timeout(_SILENCE_S):
                    message = await anext(messages, None)
                if message is None:
                    return
                parts.append(message)
                if not message.more:
                    self._apply(parts)
                    parts = []
        finally:
            call.cancel()

    def _apply(self, parts: Sequence[directory_pb2.WatchRevocationsResponse]) -> None:
        """Takes one update, whole: half a snapshot would let pass what its other half revokes."""
        first = parts[0]
        revocations = [
            Revocation(cast("RevocationKind", one.kind), one.id, one.revoked_at, one.org)
            for part in parts
            for one in part.revocations
            if one.kind in REVOCATION_KINDS
        ]
        if first.jwks:
            self._keys = kept_keys(self._keys, parse_jwks(first.jwks))
        if first.snapshot:
            self._revocations.replace(revocations)
        else:
            self._revocations.add(*revocations)
        self._apply_switches(parts)
        if first.snapshot or self._snapshot_read.is_set():
            self._heard_at_s = self._clock.monotonic_s()
            self._lost_at_s = None
            self._snapshot_read.set()

    def _apply_switches(self, parts: Sequence[directory_pb2.WatchRevocationsResponse]) -> None:
        first = parts[0]
        if not first.HasField("model_calls_age_ms"):
            return  # identity could not read them yet: what is known grows old
        off = [org for part in parts for org in part.model_calls_off]
        age_s = first.model_calls_age_ms / 1000
        if first.snapshot:
            self.org_switch.replace(off, age_s)
        else:
            self.org_switch.change(off, [org for part in parts for org in part.model_calls_on], age_s)
