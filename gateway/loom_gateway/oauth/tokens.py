"""`/oauth/token` and `/oauth/revoke`: what a client gets for a code, how it goes on, and how it ends."""

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Final

import structlog
from starlette.requests import Request
from starlette.responses import Response

from loom_common.errors import LoomError
from loom_gateway.http.answers import json_response
from loom_gateway.oauth.authorize import CODE_S
from loom_gateway.oauth.clients import Clients, client_digest
from loom_gateway.oauth.errors import OAuthError
from loom_gateway.oauth.forms import read_form
from loom_gateway.oauth.metadata import Addresses
from loom_gateway.oauth.people import Grant, People
from loom_gateway.oauth.sealed import Code, Refresh, Seals, fresh_id
from loom_gateway.oauth.spent import Spent

REFRESH_S: Final = 30 * 86_400.0
"""How long a client may stay away before its person must sign in again. Source: the longest life of a session; a
shorter one ends it sooner."""

_VERIFIER: Final = re.compile(r"[A-Za-z0-9._~-]{43,128}")
_SERVER_SIDE: Final = 500

_log = structlog.get_logger(__name__)


class Tokens:
    """Gives out tokens.

    Args:
        people: Makes them.
        clients: The registered clients.
        seals: Opens codes and refresh tokens.
        spent: Knows which of them were used.
        addresses: Where the gateway is.
    """

    def __init__(self, people: People, clients: Clients, seals: Seals, spent: Spent, addresses: Addresses) -> None:
        self._people = people
        self._clients = clients
        self._seals = seals
        self._spent = spent
        self._addresses = addresses

    async def token(self, request: Request) -> Response:
        """Answers a client that shows a code or a refresh token."""
        try:
            form = await read_form(request)
            self._clients.find(form.get("client_id", ""))
            if (resource := form.get("resource")) and not self._addresses.is_resource(request, resource):
                raise OAuthError("invalid_target", "The resource is not this gateway.")
            kind = form.get("grant_type")
            if kind == "authorization_code":
                return await self._for_code(form)
            if kind == "refresh_token":
                return await self._for_refresh(form)
            raise OAuthError("unsupported_grant_type", "grant_type must be authorization_code or refresh_token.")
        except OAuthError as error:
            return error.response()
        except LoomError as error:
            return _refused(error).response()

    async def revoke(self, request: Request) -> Response:
        """Ends a grant by its refresh token; what is not known is no error (RFC 7009)."""
        try:
            form = await read_form(request)
            held = self._seals.open(Refresh, form.get("token", ""))
            if held is not None and held.client_digest == client_digest(form.get("client_id", "")):
                await self._people.end(held.grant)
        except OAuthError as error:
            return error.response()
        except LoomError as error:
            return _refused(error).response()
        return Response(status_code=200, headers={"Cache-Control": "no-store"})

    async def _for_code(self, form: Mapping[str, str]) -> Response:
        code = self._seals.open(Code, form.get("code", ""))
        if code is None or code.client_digest != client_digest(form["client_id"]):
            raise OAuthError("invalid_grant", "The code is not one of this client, or is too old.")
        if form.get("redirect_uri", code.redirect_uri) != code.redirect_uri:
            raise OAuthError("invalid_grant", "redirect_uri is not the one that the code was sent to.")
        if not _proves(form.get("code_verifier", ""), code.challenge):
            raise OAuthError("invalid_grant", "code_verifier does not fit the code's challenge.")
        return await self._answer(code, "code", until_s=code.expires_at + CODE_S)

    async def _for_refresh(self, form: Mapping[str, str]) -> Response:
        held = self._seals.open(Refresh, form.get("refresh_token", ""))
        if held is None or held.client_digest != client_digest(form["client_id"]):
            raise OAuthError("invalid_grant", "The refresh token is not one of this client, or is too old.")
        return await self._answer(held, "refresh token", until_s=held.expires_at)

    async def _answer(self, held: Code | Refresh, called: str, *, until_s: float) -> Response:
        # Made before its use is remembered: a client that gets none now shows the same thing again, and is no thief.
        made = await self._people.token(held.grant)
        if not await self._spent.spend(held.id, org=held.grant.org, until_s=until_s):
            await self._stolen(held.grant)
            raise OAuthError("invalid_grant", f"The {called} was used before; connect again.")
        expires_at = self._seals.now_s() + REFRESH_S
        refresh = Refresh(fresh_id(), held.grant, held.client_digest, held.scope, expires_at)
        return json_response(
            {
                "access_token": made.token,
                "token_type": "Bearer",
                "expires_in": made.expires_in_s,
                "refresh_token": self._seals.seal(refresh),
                "scope": held.scope,
            },
            headers={"Pragma": "no-cache"},
        )

    async def _stolen(self, grant: Grant) -> None:
        """Ends a grant whose code or refresh token was shown twice: two hold it, and one of them is not its client."""
        _log.warning("oauth_reused", org=grant.org, subject=grant.subject, client=grant.client)
        await self._people.end(grant)


def _proves(verifier: str, challenge: str) -> bool:
    if not _VERIFIER.fullmatch(verifier):
        return False
    digest = hashlib.sha256(verifier.encode()).digest()
    return hmac.compare_digest(base64.urlsafe_b64encode(digest).rstrip(b"=").decode(), challenge)


def _refused(error: LoomError) -> OAuthError:
    """Returns why no token is made, so that a client asks its person again exactly where that helps."""
    code = "temporarily_unavailable" if error.row.http >= _SERVER_SIDE else "invalid_grant"
    return OAuthError(code, error.message)
