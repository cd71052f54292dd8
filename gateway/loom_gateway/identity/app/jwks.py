"""Other issuers' public keys: read from where a trust says, within bounds, and kept for a few minutes."""

import asyncio
import ipaddress
import json
import socket
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import urlsplit

import cachetools
import jwt
import structlog
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from loom_common.clock import Clock
from loom_common.errors import BackendUnavailable
from loom_common.local_locks import KeyedLocks
from loom_gateway.identity.domain.trusts import check_jwks_url, is_public

ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
"""Signatures that are taken: made with a private key. With a shared secret, whoever verifies could sign as well."""

_KEPT_S: Final = 300.0
# A key that nobody knows makes one reading at most in this time, whoever shows it. Source: chosen.
_AGAIN_S: Final = 30.0
_TIMEOUT_S: Final = 5.0
_MAX_BYTES: Final = 256 * 1024
_MAX_KEYS: Final = 64
# Source: NIST SP 800-131A.
_MIN_RSA_BITS: Final = 2048
_MAX_KEPT: Final = 512
_RETRY_AFTER_S: Final = 5.0

_RSA: Final = frozenset(name for name in ALGORITHMS if name.startswith(("RS", "PS")))
_BY_CURVE: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "Ed25519": "EdDSA"}

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class IssuerKey:
    """One public key of an issuer, and the signatures that it verifies: the key decides, never the token."""

    kid: str
    public: RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey
    algorithms: frozenset[str]


IssuerKeys = Mapping[str, IssuerKey]


class Issuer(Protocol):
    """Whose tokens are read: a trust, or an identity provider."""

    @property
    def issuer(self) -> str:
        """`iss` of its tokens."""
        ...

    @property
    def audience(self) -> str:
        """What their `aud` must name."""
        ...

    @property
    def jwks_url(self) -> str:
        """Address of its keys; empty where `jwks` holds them."""
        ...

    @property
    def jwks(self) -> str:
        """Its keys; empty where `jwks_url` names their address."""
        ...

    @property
    def by_operator(self) -> bool:
        """Whether the operator named it, who may name addresses inside the network."""
        ...


class KeysUnusable(Exception):
    """A key set cannot be read. The text says why, for the log."""


class KeyFetch(Protocol):
    """Reads a document from an address."""

    async def __call__(self, url: str, *, public_only: bool) -> str:
        """Returns the document.

        Args:
            url: Its address.
            public_only: Whether an address inside the network is refused.

        Raises:
            KeysUnusable: It cannot be read.
        """
        ...


class IssuerKeySource:
    """Knows the keys of issuers."""

    def __init__(self, clock: Clock, fetch: KeyFetch | None = None) -> None:
        self._clock = clock
        self._fetch: KeyFetch = fetch or fetch_document
        self._kept: cachetools.LRUCache[tuple[str, bool], tuple[float, IssuerKeys]] = cachetools.LRUCache(_MAX_KEPT)
        # Who asks needs no token: an address that does not answer is not asked again for each of them.
        self._unread: cachetools.TTLCache[tuple[str, bool], None] = cachetools.TTLCache(
            _MAX_KEPT, _RETRY_AFTER_S, clock.monotonic_s
        )
        self._locks = KeyedLocks()

    async def key(self, issuer: Issuer, kid: str | None) -> IssuerKey | None:
        """Returns the key that a token names, or None where the issuer has none of that name.

        Args:
            issuer: Whose key it is.
            kid: Name of the key; None stands for the only key of an issuer that has one.

        Raises:
            BackendUnavailable: The issuer's keys cannot be read now.
        """
        if issuer.jwks:
            return _named(parse_issuer_keys(issuer.jwks), kid)
        place = (issuer.jwks_url, not issuer.by_operator)
        async with self._locks.one(place):
            held = self._kept.get(place)
            age_s = self._clock.monotonic_s() - held[0] if held else None
            unknown = held is not None and _named(held[1], kid) is None
            if held is None or age_s is None or age_s > _KEPT_S or (unknown and age_s > _AGAIN_S):
                held = await self._read(place)
                self._kept[place] = held
        return _named(held[1], kid)

    async def _read(self, place: tuple[str, bool]) -> tuple[float, IssuerKeys]:
        url, public_only = place
        if place in self._unread:
            raise _unreadable()
        asked_at_s = self._clock.monotonic_s()
        try:
            # Checked again: rules may have become stricter since the trust was set.
            check_jwks_url(url, by_operator=not public_only)
            return asked_at_s, parse_issuer_keys(await self._fetch(url, public_only=public_only))
        except KeysUnusable as error:
            _log.warning("issuer_keys_unread", host=urlsplit(url).hostname, error=str(error))
            self._unread[place] = None
            raise _unreadable() from None


def _unreadable() -> BackendUnavailable:
    return BackendUnavailable(
        "The keys of the token's issuer cannot be read at the moment. Send the call again shortly.",
        detail={"service": "issuer"},
        retry_after_s=_RETRY_AFTER_S,
    )


def parse_issuer_keys(text: str) -> dict[str, IssuerKey]:
    """Returns the keys of a JSON Web Key Set that can verify a signature, by their `kid`; others are passed over.

    Raises:
        KeysUnusable: It is no key set, or holds no such key.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise KeysUnusable("it is not JSON") from None
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list) or len(entries) > _MAX_KEYS:
        raise KeysUnusable("it is no key set, or a very long one")
    keys: dict[str, IssuerKey] = {}
    for entry in entries:
        key = _public_key(entry)
        if key is not None:
            # Of two keys of one name neither is sure to be meant.
            if key.kid in keys:
                raise KeysUnusable("two keys have the same name")
            keys[key.kid] = key
    if not keys:
        raise KeysUnusable("it holds no public signing key")
    return keys


def _public_key(entry: object) -> IssuerKey | None:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig" or "d" in entry:
        return None
    said, kid = entry.get("alg"), entry.get("kid", "")
    fit = _RSA if entry.get("kty") == "RSA" else frozenset({_BY_CURVE.get(str(entry.get("crv")), "")})
    algorithms = (fit & {said} if said is not None else fit) & ALGORITHMS
    if not algorithms or not isinstance(kid, str):
        return None
    try:
        key = jwt.PyJWK(entry, min(algorithms)).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    if not isinstance(key, RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey):
        return None
    if isinstance(key, RSAPublicKey) and key.key_size < _MIN_RSA_BITS:
        return None
    return IssuerKey(kid, key, algorithms)


def _named(keys: IssuerKeys, kid: str | None) -> IssuerKey | None:
    if kid is not None:
        return keys.get(kid)
    return next(iter(keys.values())) if len(keys) == 1 else None


async def fetch_document(url: str, *, public_only: bool) -> str:
    """Returns the document at an address: within five seconds, at most 256 KiB, without following a redirect.

    Raises:
        KeysUnusable: It cannot be read, or leads inside the network and may not.
    """
    import httpx2  # here: a gateway without trusts need not load it

    try:
        async with asyncio.timeout(_TIMEOUT_S):
            target, extensions, headers = await _target(url, public_only=public_only)
            async with (
                httpx2.AsyncClient(trust_env=False, follow_redirects=False, timeout=_TIMEOUT_S) as client,
                client.stream("GET", target, headers=headers, extensions=extensions) as answer,
            ):
                if answer.status_code != httpx2.codes.OK:
                    raise KeysUnusable(f"it answered {answer.status_code}")
                # A few bytes may unpack to gigabytes before their length is known.
                if answer.headers.get("content-encoding", "identity") != "identity":
                    raise KeysUnusable("it is packed, which was not asked for")
                return (await _bounded(answer.aiter_raw())).decode()
    except TimeoutError:
        raise KeysUnusable("it did not answer in time") from None
    except UnicodeDecodeError:
        raise KeysUnusable("it is no UTF-8") from None
    except (httpx2.HTTPError, OSError) as error:
        raise KeysUnusable(type(error).__name__) from None


async def _bounded(chunks: AsyncIterator[bytes]) -> bytes:
    found = bytearray()
    async for chunk in chunks:
        found += chunk
        if len(found) > _MAX_BYTES:
            raise KeysUnusable("it is too long")
    return bytes(found)


async def _target(url: str, *, public_only: bool) -> tuple[str, dict[str, str], dict[str, str]]:
    """Returns what to ask: for public addresses alone the IP that was looked at, so that no later look-up differs."""
    headers = {"accept": "application/json, application/jwk-set+json", "accept-encoding": "identity"}
    if not public_only:
        return url, {}, headers
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or 443
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(place[0]) for *_, place in found]
    if not addresses or not all(map(is_public, addresses)):
        raise KeysUnusable("it leads inside the network")
    address = ipaddress.ip_address(addresses[0])
    literal = f"[{address}]" if address.version == 6 else str(address)
    named = host if port == 443 else f"{host}:{port}"
    pinned = parts._replace(netloc=f"{literal}:{port}").geturl()
    return pinned, {"sni_hostname": host}, {**headers, "host": named}
