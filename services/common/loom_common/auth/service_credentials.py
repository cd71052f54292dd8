"""How services prove to each other who they are: a token of their own, five minutes long, beside any caller's.

Each service holds one private key; all of them hold every public one, in a file. No table is involved, so a service
can be authenticated before anything else works.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import cachetools
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from loom_common.auth.tokens import SigningKey, decode_payload, jwks, parse_jwks, sign_payload
from loom_common.clock import Clock, SystemClock
from loom_common.errors import Unauthenticated
from loom_common.files import write_whole
from loom_common.ids import new_id

SERVICE_AUDIENCE: Final = "loom-internal"
OPERATOR: Final = "operator"
"""Name of the command line on the service's own machine."""

KEYRING_FILE: Final = "services.jwks"

_SUBJECT_PREFIX: Final = "svc:"
_LIFE_S: Final = 300.0
# A held token is used until this much of its life is left, so that none ends on its way.
_MIN_LEFT_S: Final = 120.0
# Source: chosen. Clocks of machines under NTP differ by far less.
_CLOCK_SKEW_S: Final = 60.0

# Source: chosen. Services and their replicas, each with a credential in use and one that it replaces.
_MAX_VERIFIED: Final = 256

_REFUSED: Final = "The service credential is not valid. Check LOOM_SERVICE_KEY and LOOM_SERVICE_JWKS of the caller."


class ServiceKey:
    """One service's private key; mints its credential."""

    def __init__(self, name: str, key: SigningKey, clock: Clock | None = None) -> None:
        self.name = name
        self._key = key
        self._clock = clock or SystemClock()
        self._held: dict[str, tuple[float, str]] = {}

    @classmethod
    def load(cls, path: Path, clock: Clock | None = None) -> "ServiceKey":
        """Returns the key in a private JWK file.

        Raises:
            ValueError: The file is no private key of a service.
            OSError: The file cannot be read.
        """
        key = SigningKey.from_jwk(path.read_text(encoding="utf-8"))
        name = _name_of(key.kid)
        if name is None:
            raise ValueError("the key's kid does not name a service, such as svc:memory#1")
        return cls(name, key, clock)

    @property
    def signing_key(self) -> SigningKey:
        """The key itself."""
        return self._key

    def mint(self, audience: str = SERVICE_AUDIENCE) -> str:
        """Returns a credential with at least two minutes left; the same one while it has."""
        now_s = self._clock.now().timestamp()
        held = self._held.get(audience)
        if held is not None and held[0] - now_s > _MIN_LEFT_S:
            return held[1]
        subject = f"{_SUBJECT_PREFIX}{self.name}"
        payload = {"iss": subject, "sub": subject, "aud": audience, "iat": now_s, "exp": now_s + _LIFE_S}
        token = sign_payload({**payload, "jti": new_id()}, self._key)
        self._held[audience] = (now_s + _LIFE_S, token)
        return token


class ServiceKeyring:
    """The public keys of every service; verifies their credentials."""

    def __init__(self, keys: Mapping[str, Ed25519PublicKey], clock: Clock | None = None) -> None:
        self._keys = dict(keys)
        self._clock = clock or SystemClock()
        # A peer shows one credential for minutes, and its signature is the dearest part of letting a call in.
        self._verified: cachetools.LRUCache[bytes, tuple[str, float]] = cachetools.LRUCache(_MAX_VERIFIED)

    @classmethod
    def load(cls, path: Path, clock: Clock | None = None) -> "ServiceKeyring":
        """Returns the keys in a JWKS file.

        Raises:
            ValueError: The file is no JWKS of services.
            OSError: The file cannot be read.
        """
        keys = parse_jwks(path.read_text(encoding="utf-8"))
        if any(_name_of(kid) is None for kid in keys):
            raise ValueError("the JWKS holds a key whose kid does not name a service")
        return cls(keys, clock)

    def verify(self, token: str) -> str:
        """Returns the name of the service whose credential it is, such as `memory`.

        Raises:
            Unauthenticated: It is forged, expired, meant for another audience, or no service's credential.
        """
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        known = self._verified.get(digest)
        if known is not None and self._clock.now().timestamp() < known[1]:
            return known[0]
        name, ends = self._checked(token)
        self._verified[digest] = name, ends
        return name

    def _checked(self, token: str) -> tuple[str, float]:
        """Returns the name of a credential that was never seen before, and when it ends."""
        kids: list[str] = []

        def key_of(kid: str) -> Ed25519PublicKey | None:
            kids.append(kid)
            return self._keys.get(kid)

        payload = decode_payload(token, key_of, issuer=None, audience=SERVICE_AUDIENCE)
        name = _name_of(kids[-1])
        # The key decides who it is: a service that signs in another's name is refused.
        if name is None or payload.get("sub") != payload.get("iss") or payload.get("sub") != f"{_SUBJECT_PREFIX}{name}":
            raise Unauthenticated(_REFUSED)
        now_s = self._clock.now().timestamp()
        issued, ends = payload.get("iat"), payload.get("exp")
        if not isinstance(issued, int | float) or not isinstance(ends, int | float):
            raise Unauthenticated(_REFUSED)
        # The end has no such slack: a holder renews long before it.
        if not issued - _CLOCK_SKEW_S <= now_s < ends or ends - issued > _LIFE_S + 1:
            raise Unauthenticated(_REFUSED)
        return name, float(ends)


def generate_service_keys(directory: Path, names: Sequence[str]) -> Path:
    """Writes `<name>.jwk` (mode 0600) for each name that has none yet, and the keyring of all of them.

    Returns:
        The path of the keyring, `services.jwks`.

    Raises:
        ValueError: A key that is there already cannot be read.
        OSError: The directory cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    public = []
    for name in names:
        path = directory / f"{name}.jwk"
        if path.exists():
            key = ServiceKey.load(path).signing_key
        else:
            key = SigningKey.generate(f"{_SUBJECT_PREFIX}{name}#{new_id()}")
            write_whole(path, key.to_jwk())
        public.append(key.public_jwk())
    keyring = directory / KEYRING_FILE
    write_whole(keyring, jwks(public), 0o644)
    return keyring


def _name_of(kid: str) -> str | None:
    name = kid.removeprefix(_SUBJECT_PREFIX).partition("#")[0]
    return name if kid.startswith(_SUBJECT_PREFIX) and name else None
