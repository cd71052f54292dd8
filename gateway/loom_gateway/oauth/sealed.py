"""What is given out sealed: clients, consents, codes and refresh tokens, each of which only the gateway can read."""

import json
import secrets
from dataclasses import asdict, dataclass
from typing import Final, TypeVar

from pydantic import SecretStr

from loom_common.auth.claims import Role
from loom_common.clock import Clock
from loom_common.sealing import SealBroken, Sealer
from loom_gateway.oauth.people import Grant

SEAL_PURPOSE: Final = "gateway.oauth"

# The largest client, asked for with the longest state by the longest name, comes to some 13,000.
_MAX_CHARS: Final = 16_384


@dataclass(frozen=True, slots=True)
class Client:
    """A client, as it registered itself."""

    name: str
    redirect_uris: list[str]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a client asks of a person."""

    client_id: str
    redirect_uri: str
    challenge: str
    """SHA-256 of the client's own secret, which it shows with the code."""
    role: int
    scope: str
    state: str


@dataclass(frozen=True, slots=True)
class Consent:
    """A page that asks one person for one thing; good for an answer by that person alone."""

    asked: Asked
    org: str
    subject: str
    sid: str
    expires_at: float


@dataclass(frozen=True, slots=True)
class Code:
    """What a client is sent back with once a person said yes; good once, and not for long."""

    id: str
    grant: Grant
    client_digest: str
    redirect_uri: str
    challenge: str
    scope: str
    expires_at: float


@dataclass(frozen=True, slots=True)
class Refresh:
    """What a client gets its next token with; good once, since each answer holds the next one."""

    id: str
    grant: Grant
    client_digest: str
    scope: str
    expires_at: float


Sealed = TypeVar("Sealed", Client, Consent, Code, Refresh)


class Seals:
    """Seals and opens what is given out.

    Args:
        secret: The deployment's secret.
        previous: The one before, during a rotation.
        clock: Time, by which what is old does not open.
    """

    def __init__(self, secret: SecretStr, previous: SecretStr | None, clock: Clock) -> None:
        self._sealer = Sealer(secret, previous, purpose=SEAL_PURPOSE)
        self._clock = clock

    def now_s(self) -> float:
        """Returns the time. Units: seconds since 1970, UTC."""
        return self._clock.now().timestamp()

    def seal(self, value: Client | Consent | Code | Refresh) -> str:
        """Returns the value as it is given out: text that is safe in an address."""
        body = json.dumps(asdict(value), separators=(",", ":")).encode()
        return self._sealer.seal(body, name=type(value).__name__).rstrip("=")

    def open(self, kind: type[Sealed], text: str) -> Sealed | None:
        """Returns a value that was given out, or None for what was not, or is too old."""
        if not text or len(text) > _MAX_CHARS or not text.isascii():
            return None
        try:
            held = json.loads(self._sealer.open(text + "=" * (-(len(text) - len("v1.")) % 4), name=kind.__name__))
        except (SealBroken, ValueError):
            return None
        if "grant" in held:
            held["grant"] = Grant(**{**held["grant"], "role": Role(held["grant"]["role"])})
        if "asked" in held:
            held["asked"] = Asked(**held["asked"])
        value = kind(**held)
        expires_at = held.get("expires_at")
        return value if expires_at is None or expires_at > self.now_s() else None


def fresh_id() -> str:
    """Returns the identifier of a code or a refresh token."""
    return secrets.token_urlsafe(16)
