"""Signing in on a machine without a browser: a program shows a code, and a signed-in person types it elsewhere.

Nothing is stored before a person approves: what the program holds is sealed, so that strangers can fill no table.
"""

import hashlib
import json
import secrets
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

from loom_common.clock import Clock
from loom_common.conditional_writes import Claims as ConditionalWrites
from loom_common.conditional_writes import claim_name
from loom_common.errors import InvalidArgument, Unauthenticated
from loom_common.sealing import SealBroken, Sealer
from loom_gateway.identity.app.listing import whole_ms
from loom_gateway.identity.app.sessions import SessionDesk, SignedIn
from loom_gateway.identity.domain.sessions import DeviceApproval
from loom_gateway.identity.store.approvals import ApprovalRepository

SEAL_PURPOSE: Final = "signin.device"
CODE_LIFE: Final = timedelta(minutes=10)
INTERVAL_S: Final = 2
"""How often a program may ask."""

# Without vowels, which make words, and without what is read for another. Source: RFC 8628, 6.1.
_LETTERS: Final = "BCDFGHJKLMNPQRSTVWXZ"
_CHARS: Final = 8


class Pending(Exception):
    """Nobody has approved the code yet."""


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """What a program is given: a code to show, and one to ask with."""

    user_code: str
    device_code: str = field(repr=False)


class DeviceDesk:
    """Gives out codes, takes approvals and lets programs in."""

    def __init__(
        self,
        approvals: ApprovalRepository,
        sessions: SessionDesk,
        sealer: Sealer,
        writes: ConditionalWrites,
        clock: Clock,
    ) -> None:
        self._approvals = approvals
        self._sessions = sessions
        self._sealer = sealer
        self._writes = writes
        self._clock = clock

    def begin(self) -> DeviceCode:
        """Returns codes for a program."""
        drawn = "".join(secrets.choice(_LETTERS) for _ in range(_CHARS))
        until_s = (self._clock.now() + CODE_LIFE).timestamp()
        held = json.dumps({"code": drawn, "until": until_s}).encode()
        return DeviceCode(f"{drawn[:4]}-{drawn[4:]}", self._sealer.seal(held, name=SEAL_PURPOSE))

    async def approve(self, signed_in: SignedIn, user_code: str) -> None:
        """Lets the program that shows a code act as a signed-in person.

        Raises:
            InvalidArgument: It is no code.
            Conflict: It is being approved or used.
        """
        code = "".join(char for char in user_code.upper() if char.isalnum())
        if len(code) != _CHARS or any(char not in _LETTERS for char in code):
            raise InvalidArgument.of("user_code", "is the code that the program shows, such as BCDF-GHJK")
        digest, session = _digest(code), signed_in.session
        async with self._writes.hold(claim_name("device_approval", digest)) as hold:
            before = await self._approvals.find(digest)
            now = whole_ms(self._clock.now())
            if before is not None and before.expires_at > now:
                raise InvalidArgument.of("user_code", "was approved before; ask the program for another")
            version = hold.version_after(before.version if before else 0)
            await self._approvals.put(
                DeviceApproval(digest, session.org, session.subject, now, now + CODE_LIFE, None, version)
            )
            await hold.confirm()

    async def finish(self, device_code: str) -> SignedIn:
        """Begins the session of a program whose code was approved; once.

        Raises:
            Pending: Nobody has approved it yet.
            Unauthenticated: It is no code, too old, or was used.
            AuthInsufficient: The person holds nothing.
        """
        try:
            held = json.loads(self._sealer.open(device_code, name=SEAL_PURPOSE))
        except SealBroken:
            raise Unauthenticated("The code is none that was given out here.") from None
        now = whole_ms(self._clock.now())
        if held["until"] <= now.timestamp():
            raise Unauthenticated("The code is too old; begin again.")
        digest = _digest(held["code"])
        # Looked at first without a hold: programs ask every few seconds, and mostly in vain.
        if await self._approvals.find(digest) is None:
            raise Pending
        async with self._writes.hold(claim_name("device_approval", digest)) as hold:
            approval = await self._approvals.find(digest)
            if approval is None or approval.expires_at <= now:
                raise Pending
            if approval.used_at is not None:
                raise Unauthenticated("The code was used; begin again.")
            version = hold.version_after(approval.version)
            await self._approvals.put(replace(approval, used_at=now, version=version))
            await hold.confirm()
        return await self._sessions.begin(approval.org, approval.subject, "login")


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()
