"""Tokens as text: Ed25519 JWTs, signed with one key and read with a set of public ones.

Callers' tokens and service credentials share the cryptography here and nothing else: issuer, audience and keys differ,
so that neither passes for the other.
"""

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from jwt.algorithms import OKPAlgorithm

from loom_common.auth.claims import Claims, ClaimsError, claims_from_payload
from loom_common.errors import TokenExpired, Unauthenticated
from loom_common.ids import new_id

ISSUER: Final = "loom"
AUDIENCE: Final = "loom"
ALGORITHM: Final = "EdDSA"

# Bounds the work that an unverified text can cause. Source: 64 grants and two chains of 32 names fit.
MAX_TOKEN_BYTES: Final = 16_384

_UNREADABLE: Final = "The token is not one that this deployment issued. Make a new one with `loom token create`."


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private Ed25519 key and the name under which its public half is known."""

    kid: str
    private: Ed25519PrivateKey

    @classmethod
    def generate(cls, kid: str | None = None) -> "SigningKey":
        """Returns a fresh key; its name is drawn too unless given."""
        return cls(kid or new_id(), Ed25519PrivateKey.generate())

    @classmethod
    def from_jwk(cls, text: str) -> "SigningKey":
        """Returns the key of a private JWK.

        Raises:
            ValueError: The text is no private Ed25519 JWK with a `kid`.
        """
        document = _json_object(text)
        kid = document.get("kid")
        if not isinstance(kid, str) or not kid:
            raise ValueError("the JWK has no kid")
        key = _key_from_jwk(document)
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueError("the JWK holds no private Ed25519 key")
        return cls(kid, key)

    def to_jwk(self) -> str:
        """Returns the private key as a JWK. A secret."""
        raw = _b64(self.private.private_bytes_raw())
        return json.dumps({**self.public_jwk(), "d": raw}, sort_keys=True)

    def public_jwk(self) -> dict[str, str]:
        """Returns the public half as a JWK."""
        raw = _b64(self.private.public_key().public_bytes_raw())
        return {"kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": ALGORITHM, "kid": self.kid, "x": raw}


def jwks(keys: Iterable[Mapping[str, str]]) -> str:
    """Returns public JWKs as a JWKS document."""
    return json.dumps({"keys": [dict(key) for key in keys]}, sort_keys=True)


def parse_jwks(text: str) -> dict[str, Ed25519PublicKey]:
    """Returns the public keys of a JWKS document by their `kid`.

    Raises:
        ValueError: The text is no JWKS, or holds a key that is not a public Ed25519 one.
    """
    entries = _json_object(text).get("keys")
    if not isinstance(entries, list):
        raise ValueError("the JWKS has no list of keys")
    keys: dict[str, Ed25519PublicKey] = {}
    for entry in entries:
        kid = entry.get("kid") if isinstance(entry, dict) else None
        if not isinstance(kid, str) or not kid or kid in keys:
            raise ValueError("the JWKS holds a key without a name of its own")
        key = _key_from_jwk(entry)
        if not isinstance(key, Ed25519PublicKey):
            raise ValueError("the JWKS holds a key that is not a public Ed25519 one")
        keys[kid] = key
    return keys


def sign_token(claims: Claims, key: SigningKey) -> str:
    """Returns the claims as a caller's token."""
    return sign_payload({**claims.to_payload(), "iss": ISSUER, "aud": AUDIENCE}, key)


def sign_payload(payload: Mapping[str, object], key: SigningKey) -> str:
    """Returns any payload as a JWT."""
    return jwt.encode(dict(payload), key.private, algorithm=ALGORITHM, headers={"kid": key.kid})


def decode_token(token: str, key_of: Callable[[str], Ed25519PublicKey | None], *, now_s: float) -> Claims:
    """Returns the claims of a caller's token.

    Args:
        token: The JWT.
        key_of: Finds a public key by its name; None for an unknown one.
        now_s: Units: seconds since 1970-01-01 UTC.

    Raises:
        Unauthenticated: It was not signed by one of the keys, or is not a token of ours.
        TokenExpired: Its time has passed.
    """
    payload = decode_payload(token, key_of, issuer=ISSUER, audience=AUDIENCE)
    try:
        claims = claims_from_payload(payload)
    except ClaimsError:
        raise Unauthenticated(_UNREADABLE) from None
    if claims.exp <= now_s:
        raise TokenExpired("The token has expired. Make a new one with `loom token create`.")
    return claims


def decode_payload(
    token: str, key_of: Callable[[str], Ed25519PublicKey | None], *, issuer: str | None, audience: str
) -> dict[str, object]:
    """Returns the payload of a JWT whose signature, issuer and audience are good. Its times are the caller's to check.

    Raises:
        Unauthenticated: It is not such a JWT.
    """
    if len(token) > MAX_TOKEN_BYTES:
        raise Unauthenticated(_UNREADABLE)
    try:
        kid = jwt.get_unverified_header(token).get("kid")
        key = key_of(kid) if isinstance(kid, str) else None
        if key is None:
            raise Unauthenticated(_UNREADABLE)
        return dict(
            jwt.decode(
                token,
                key,
                algorithms=[ALGORITHM],
                audience=audience,
                issuer=issuer,
                # Times are compared with our clock, and an `iat` of a host whose clock runs ahead is no offence.
                options={
                    "require": ["exp", "iat", "iss", "aud", "sub"],
                    "verify_exp": False,
                    "verify_iat": False,
                    "verify_nbf": False,
                },
            )
        )
    # ValueError: what PyJWT lets through of a header that is no UTF-8 or no JSON.
    except (jwt.InvalidTokenError, ValueError):
        raise Unauthenticated(_UNREADABLE) from None


def _key_from_jwk(document: Mapping[str, object]) -> object:
    if document.get("crv") != "Ed25519":
        raise ValueError("the JWK holds no Ed25519 key")
    try:
        return OKPAlgorithm.from_jwk(json.dumps(document))
    except jwt.InvalidKeyError:
        raise ValueError("the JWK cannot be read") from None


def _json_object(text: str) -> dict[str, object]:
    document = json.loads(text)
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")
    return document


def _b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
