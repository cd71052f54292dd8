"""`/oauth/authorize`: a person is asked, and the client is sent back with a code."""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode, urlsplit, urlunsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from loom_common.auth.claims import Role
from loom_common.errors import AuthInsufficient, LoomError
from loom_gateway.oauth.clients import Clients, client_digest, is_on_own_machine, redirects_to
from loom_gateway.oauth.errors import NoClient, OAuthError
from loom_gateway.oauth.forms import read_form, single_values
from loom_gateway.oauth.metadata import AUTHORIZE, Addresses, role_of
from loom_gateway.oauth.page import consent_page, problem_page
from loom_gateway.oauth.people import People, Person
from loom_gateway.oauth.sealed import Asked, Code, Consent, Seals, fresh_id

# Source: chosen. A person reads one page; a code goes straight from a browser to the client that waits for it.
_CONSENT_S: Final = 600.0
CODE_S: Final = 60.0
_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_STATE: Final = re.compile(r"[\x20-\x7e]{0,2048}")


class Authorization:
    """Asks people.

    Args:
        people: Who is signed in.
        clients: The registered clients.
        seals: Seals what is given out.
        addresses: Where the gateway is.
    """

    def __init__(self, people: People, clients: Clients, seals: Seals, addresses: Addresses) -> None:
        self._people = people
        self._clients = clients
        self._seals = seals
        self._addresses = addresses

    async def ask(self, request: Request) -> Response:
        """Answers GET: the page that asks, or the way to sign in first."""
        try:
            values = single_values(request.query_params.multi_items())
            uri = self._redirect_uri(values)
        except OAuthError as error:
            return problem_page(error.description)
        try:
            asked = self._asked(request, values, uri)
        except OAuthError as error:
            if not is_on_own_machine(uri):
                # Anybody registers a site: an address of ours must lead nobody there who was not asked first.
                return problem_page(error.description)
            return self._back(
                request, uri, values.get("state", ""), error=error.code, error_description=error.description
            )
        person = await self._people.who(request)
        if person is None:
            sign_in = self._people.sign_in_url(f"{AUTHORIZE}?{request.url.query}")
            return RedirectResponse(f"{self._addresses.public.prefix}{sign_in}", status_code=303)
        expires_at = self._seals.now_s() + _CONSENT_S
        consent = self._seals.seal(Consent(asked, person.org, person.subject, person.sid, expires_at))
        return consent_page(
            client=self._clients.find(asked.client_id).name,
            redirect_uri=uri,
            subject=person.subject,
            role=Role(asked.role),
            consent=consent,
        )

    async def answer(self, request: Request) -> Response:
        """Answers POST: sends the client back with a code, or with a no."""
        try:
            form = await read_form(request)
        except OAuthError as error:
            return problem_page(error.description)
        consent = self._seals.open(Consent, form.get("consent", ""))
        person = await self._people.who(request)
        if consent is None or person is None or person != Person(consent.org, consent.subject, consent.sid):
            # Somebody else's page, or one that waited too long.
            return problem_page("The page is too old, or you have signed out since it was shown.")
        asked = consent.asked
        if form.get("answer") != "allow":
            return self._back(request, asked.redirect_uri, asked.state, error="access_denied")
        try:
            code = await self._code(person, asked)
        except AuthInsufficient as error:
            return self._back(
                request, asked.redirect_uri, asked.state, error="access_denied", error_description=error.message
            )
        except LoomError:
            return self._back(request, asked.redirect_uri, asked.state, error="temporarily_unavailable")
        return self._back(request, asked.redirect_uri, asked.state, code=code)

    async def _code(self, person: Person, asked: Asked) -> str:
        name = self._clients.find(asked.client_id).name
        grant = await self._people.open(person, client=name, role=Role(asked.role))
        return self._seals.seal(
            Code(
                id=fresh_id(),
                grant=grant,
                client_digest=client_digest(asked.client_id),
                redirect_uri=asked.redirect_uri,
                challenge=asked.challenge,
                scope=asked.scope,
                expires_at=self._seals.now_s() + CODE_S,
            )
        )

    def _redirect_uri(self, values: Mapping[str, str]) -> str:
        """Returns where the client is answered; nobody is sent to an address that it did not register."""
        client = self._clients.find(values.get("client_id", ""))
        uri = values.get("redirect_uri") or (client.redirect_uris[0] if len(client.redirect_uris) == 1 else "")
        if not redirects_to(client, uri):
            raise NoClient("The program asked for its answer at an address that it did not register.")
        return uri

    def _asked(self, request: Request, values: Mapping[str, str], uri: str) -> Asked:
        if values.get("response_type") != "code":
            raise OAuthError("unsupported_response_type", "response_type must be code")
        challenge = values.get("code_challenge", "")
        if values.get("code_challenge_method") != "S256" or not _CHALLENGE.fullmatch(challenge):
            raise OAuthError("invalid_request", "code_challenge of method S256 is required")
        role = role_of(values.get("scope", ""))
        if role is None:
            raise OAuthError("invalid_scope", "there is no such scope")
        resource = values.get("resource", "")
        if resource and not self._addresses.is_resource(request, resource):
            raise OAuthError("invalid_target", "the resource is not this gateway")
        if not _STATE.fullmatch(values.get("state", "")):
            raise OAuthError("invalid_request", "state must be at most 2048 printable ASCII characters")
        return Asked(
            client_id=values["client_id"],
            redirect_uri=uri,
            challenge=challenge,
            role=int(role[0]),
            scope=role[1],
            state=values.get("state", ""),
        )

    def _back(self, request: Request, uri: str, state: str, **answer: str) -> Response:
        """Sends the client its answer, with who answers, so that no other server's answer passes for it."""
        told = {
            **answer,
            **({"state": state} if state and _STATE.fullmatch(state) else {}),
            "iss": self._addresses.public.base(request),
        }
        parts = urlsplit(uri)
        query = "&".join(part for part in (parts.query, urlencode(told)) if part)
        target = urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))
        return RedirectResponse(target, status_code=303, headers={"Cache-Control": "no-store"})
