"""Verifies callers' tokens, with a cache in front of the signature."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import cachetools
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from loom_common.auth.claims import Claims
from loom_common.auth.revocations import RevocationSet
from loom_common.auth.tokens import MAX_TOKEN_BYTES, SigningKey, decode_token
from loom_common.clock import Clock
from loom_common.errors import TokenExpired, TokenRevoked, Unauthenticated

# Entries are about 1 KiB. Source: chosen, above the tokens that one replica sees in an hour.
_CACHED_TOKENS: Final = 8192


class KeySource(Protocol):
    """Finds the public keys of tokens."""

    def verification_key(self, kid: str) -> Ed25519PublicKey | None:
        """Returns the key of that name, or None where there is none.

        Raises:
            BackendUnavailable: The keys could not be read for so long that nothing can be said.
        """
        ...


class RevocationView(Protocol):
    """Tells whether a token was ended before its time."""

    def check(self, claims: Claims) -> None:
        """Returns where the token still holds.

        Raises:
            TokenRevoked: The token, an ancestor, its session or a subject behind it is revoked.
            BackendUnavailable: Revocations could not be read for so long that nothing can be said.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Verified:
    claims: Claims
    kid: str
    key: Ed25519PublicKey


class TokenVerifier:
    """Verifies callers' tokens.

    A signature takes about 150 µs to check and a token never changes, so good ones are kept by their digest. What can
    change is checked each time: the clock, the revocations, and whether the key is still one of ours.
    """

    def __init__(self, keys: KeySource, revocations: RevocationView, clock: Clock) -> None:
        self._keys = keys
        self._revocations = revocations
        self._clock = clock
        self._verified: cachetools.LRUCache[bytes, _Verified] = cachetools.LRUCache(maxsize=_CACHED_TOKENS)

    def verify(self, token: str) -> Claims:
        """Returns what the token says.

        Raises:
            Unauthenticated: It is not a token that this deployment issued.
            TokenExpired: Its time has passed.
            TokenRevoked: It was ended before its time.
            BackendUnavailable: Keys or revocations cannot be read; the call may be sent again.
        """
        if len(token) > MAX_TOKEN_BYTES:
            raise Unauthenticated("The token is too long to be one that this deployment issued.")
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        now_s = self._clock.now().timestamp()
        held = self._verified.get(digest)
        if held is None or self._keys.verification_key(held.kid) is not held.key:
            self._verified.pop(digest, None)
            held = self._decode(token, now_s)
            self._verified[digest] = held
        elif held.claims.exp <= now_s:
            del self._verified[digest]
            raise TokenExpired("The token has expired. Make a new one with `loom token create`.")
        self._revocations.check(held.claims)
        return held.claims

    def _decode(self, token: str, now_s: float) -> _Verified:
        used: list[tuple[str, Ed25519PublicKey]] = []

        def key_of(kid: str) -> Ed25519PublicKey | None:
            key = self._keys.verification_key(kid)
            if key is not None:
                used.append((kid, key))
            return key

        claims = decode_token(token, key_of, now_s=now_s)
        kid, key = used[-1]
        return _Verified(claims, kid, key)


class LocalIdentity:
    """Keys and revocations that live in this process: the issuer's own view, always fresh."""

    def __init__(self, *keys: SigningKey) -> None:
        self._keys = {key.kid: key.private.public_key() for key in keys}
        self.revocations = RevocationSet()

    def set_keys(self, keys: dict[str, Ed25519PublicKey]) -> None:
        """Holds `keys` and no other."""
        self._keys = kept_keys(self._keys, keys)

    def verification_key(self, kid: str) -> Ed25519PublicKey | None:
        """See `KeySource.verification_key`."""
        return self._keys.get(kid)

    def check(self, claims: Claims) -> None:
        """See `RevocationView.check`."""
        if self.revocations.revoked(claims):
            raise TokenRevoked("The token was revoked. Make a new one with `loom token create`.")


def kept_keys(
    held: Mapping[str, Ed25519PublicKey], read: Mapping[str, Ed25519PublicKey]
) -> dict[str, Ed25519PublicKey]:
    """Returns `read`, with the held object for each key that is unchanged, so that verified tokens stay cached."""
    return {
        kid: held[kid] if kid in held and held[kid].public_bytes_raw() == key.public_bytes_raw() else key
        for kid, key in read.items()
    }
