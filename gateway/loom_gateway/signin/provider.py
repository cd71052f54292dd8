"""An identity provider as OpenID Connect describes it: where it is asked, and what its answers say of a person."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from loom_common.clock import Clock
from loom_common.errors import BackendUnavailable, Unauthenticated
from loom_gateway.identity.app.issuer_tokens import IssuerTokens
from loom_gateway.identity.app.jwks import KeysUnusable, fetch_document
from loom_gateway.identity.domain.trusts import TrustRefused

_KEPT_S: Final = 3600.0
_TIMEOUT_S: Final = 10.0
_MAX_BYTES: Final = 256 * 1024
SCOPE: Final = "openid email profile"
_UNREACHABLE: Final = "The identity provider cannot be reached at the moment. Try again shortly."
REFUSED: Final = "The identity provider's answer cannot be used. Sign in again; the gateway's log says why."

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Client:
    """How the provider knows Loom.

    Attributes:
        issuer: The provider's issuer.
        client_id: Identifier of Loom there.
        secret: Secret that goes with it; empty for a public client.
    """

    issuer: str
    client_id: str
    secret: str = ""

    def __repr__(self) -> str:
        return f"Client(issuer={self.issuer!r}, client_id={self.client_id!r})"


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a provider says of itself; an issuer whose tokens are read."""

    issuer: str
    audience: str
    authorization_url: str
    token_url: str
    jwks_url: str
    jwks: str = ""
    by_operator: bool = True


@dataclass(frozen=True, slots=True)
class Identity:
    """What a provider says of a person, whose address it verified."""

    email: str
    name: str


class Provider:
    """One identity provider.

    Args:
        client: How it knows Loom.
        tokens: Reads its tokens.
        clock: Time.
    """

    def __init__(self, client: Client, tokens: IssuerTokens, clock: Clock) -> None:
        self.client = client
        self._tokens = tokens
        self._clock = clock
        self._kept: tuple[float, Metadata] | None = None

    async def metadata(self) -> Metadata:
        """Returns what the provider says of itself, kept for an hour.

        Raises:
            BackendUnavailable: It cannot be read, or is another issuer's.
        """
        if self._kept is not None and self._clock.monotonic_s() - self._kept[0] < _KEPT_S:
            return self._kept[1]
        url = f"{self.client.issuer.rstrip('/')}/.well-known/openid-configuration"
        try:
            found = _metadata(json.loads(await fetch_document(url, public_only=False)), self.client)
        except (KeysUnusable, ValueError, RecursionError):
            raise BackendUnavailable(_UNREACHABLE, detail={"service": "issuer"}, retry_after_s=5.0) from None
        self._kept = (self._clock.monotonic_s(), found)
        return found

    async def authorization_url(self, *, redirect_uri: str, state: str, nonce: str, verifier: str) -> str:
        """Returns where a person is sent to sign in.

        Raises:
            BackendUnavailable: The provider cannot be read.
        """
        from authlib.oauth2.rfc6749.parameters import prepare_grant_uri  # here: most gateways never need it
        from authlib.oauth2.rfc7636 import create_s256_code_challenge

        asked: str = prepare_grant_uri(
            (await self.metadata()).authorization_url,
            self.client.client_id,
            "code",
            redirect_uri=redirect_uri,
            scope=SCOPE,
            state=state,
            nonce=nonce,
            code_challenge=create_s256_code_challenge(verifier),
            code_challenge_method="S256",
        )
        return asked

    async def identity(self, code: str, *, redirect_uri: str, nonce: str, verifier: str) -> Identity:
        """Returns the person that a code stands for.

        Raises:
            Unauthenticated: The code or the answer is not good, or names no address that was verified.
            BackendUnavailable: The provider cannot be reached.
        """
        metadata = await self.metadata()
        answer = await self._exchanged(metadata, code, redirect_uri, verifier)
        token, access_token = answer.get("id_token"), answer.get("access_token")
        if not isinstance(token, str):
            raise _refused("it holds no ID token")
        try:
            payload = await self._tokens.verified(metadata, token)
        except TrustRefused as refusal:
            raise _refused(str(refusal)) from None
        self._check(payload, token, nonce, access_token)
        email, name = payload.get("email"), payload.get("name")
        if not isinstance(email, str) or payload.get("email_verified") is not True:
            raise _refused("it names no address that was verified")
        return Identity(email.strip().lower(), name if isinstance(name, str) else "")

    def _check(self, payload: Mapping[str, object], token: str, nonce: str, access_token: object) -> None:
        """Returns if the rules of OpenID Connect hold beside those of any token: nonce, party, hash."""
        import jwt
        from authlib.oidc.core import CodeIDToken
        from joserfc.errors import JoseError

        parameters = {"nonce": nonce, "client_id": self.client.client_id}
        if isinstance(access_token, str):
            parameters["access_token"] = access_token
        claims = CodeIDToken(dict(payload), jwt.get_unverified_header(token), {}, parameters)
        try:
            claims.validate(now=int(self._clock.now().timestamp()), leeway=60)
        except JoseError as error:
            raise _refused(type(error).__name__) from None

    async def _exchanged(self, metadata: Metadata, code: str, redirect_uri: str, verifier: str) -> dict[str, object]:
        import httpx2  # here: most gateways never need it

        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
            "client_id": self.client.client_id,
        }
        auth = (self.client.client_id, self.client.secret) if self.client.secret else httpx2.USE_CLIENT_DEFAULT
        try:
            async with httpx2.AsyncClient(trust_env=False, follow_redirects=False, timeout=_TIMEOUT_S) as http:
                answer = await http.post(
                    metadata.token_url, data=form, auth=auth, headers={"accept": "application/json"}
                )
        except (httpx2.HTTPError, OSError):
            raise BackendUnavailable(_UNREACHABLE, detail={"service": "issuer"}, retry_after_s=5.0) from None
        if answer.status_code != httpx2.codes.OK or len(answer.content) > _MAX_BYTES:
            raise _refused(f"the code was answered {answer.status_code}")
        try:
            found = answer.json()
        except ValueError:
            raise _refused("it is not JSON") from None
        if not isinstance(found, dict):
            raise _refused("it is no JSON object")
        return found


def _metadata(document: object, client: Client) -> Metadata:
    """Returns what a discovery document says.

    Raises:
        ValueError: It is another issuer's, or lacks an address.
    """
    if not isinstance(document, dict) or document.get("issuer") != client.issuer:
        raise ValueError("another issuer's")
    addresses = [document.get(name) for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")]
    authorization, token, keys = (address if isinstance(address, str) else "" for address in addresses)
    if not (authorization and token and keys):
        raise ValueError("an address is missing")
    return Metadata(client.issuer, client.client_id, authorization, token, keys)


def _refused(why: str) -> Unauthenticated:
    _log.warning("sign_in_refused", why=why)
    return Unauthenticated(REFUSED)
