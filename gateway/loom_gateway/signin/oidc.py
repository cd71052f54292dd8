"""`/sign-in/oidc`: people sign in with an identity provider, by the code flow of OpenID Connect with PKCE."""

import hmac
import json
import secrets
from dataclasses import asdict, dataclass
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from loom_common.clock import Clock
from loom_common.errors import AuthInsufficient, Unauthenticated
from loom_common.sealing import SealBroken, Sealer
from loom_gateway.http.origins import PublicAddress
from loom_gateway.identity.app.orgs import AccountDesk
from loom_gateway.identity.app.sessions import SessionDesk
from loom_gateway.identity.domain.subjects import SubjectKind, subject_kind
from loom_gateway.identity.store.grants import GrantRepository
from loom_gateway.signin.cookies import FLOW_COOKIE, clear_cookie, set_cookie
from loom_gateway.signin.provider import Provider
from loom_gateway.signin.routes import Handler, answering, begun, own_path

FLOW_PURPOSE: Final = "signin.flow"
OIDC_PATH: Final = "/sign-in/oidc"
CALLBACK_PATH: Final = "/sign-in/oidc/callback"

# Source: chosen. A person finds a password and a second factor in that time.
_FLOW_S: Final = 600
_SECRET_BYTES: Final = 32
_MAX_ORGS: Final = 16


@dataclass(frozen=True, slots=True)
class Flow:
    """What a sign-in began with; it waits in the browser, sealed, so that any replica can end it."""

    state: str
    nonce: str
    verifier: str
    return_to: str
    org: str
    until_s: float


class OidcSignIn:
    """Signs people in with an identity provider.

    Args:
        provider: The provider.
        sessions: Begins sessions.
        accounts: Keeps what the provider says of people.
        grants: Says in which organisations a person holds something.
        sealer: Seals what waits in the browser.
        public: Where callers find the gateway.
        clock: Time.
    """

    def __init__(
        self,
        provider: Provider,
        sessions: SessionDesk,
        accounts: AccountDesk,
        grants: GrantRepository,
        sealer: Sealer,
        public: PublicAddress,
        clock: Clock,
    ) -> None:
        self._provider = provider
        self._sessions = sessions
        self._accounts = accounts
        self._grants = grants
        self._sealer = sealer
        self._public = public
        self._clock = clock

    @property
    def way(self) -> tuple[str, str]:
        """What the page calls it, and where it begins."""
        return urlsplit(self._provider.client.issuer).hostname or "single sign-on", OIDC_PATH.removeprefix("/")

    @property
    def routes(self) -> list[BaseRoute]:
        """The routes, to be mounted at the root."""
        return [
            Route(OIDC_PATH, self._answering(answering(self.start)), methods=["GET"]),
            Route(CALLBACK_PATH, self._answering(answering(self.end)), methods=["GET"]),
        ]

    async def start(self, request: Request) -> Response:
        """Sends a person to the provider."""
        flow = Flow(
            state=secrets.token_urlsafe(_SECRET_BYTES),
            nonce=secrets.token_urlsafe(_SECRET_BYTES),
            verifier=secrets.token_urlsafe(48),
            return_to=own_path(request.query_params.get("return_to", "/")),
            org=request.query_params.get("org", "")[:128],
            until_s=self._clock.now().timestamp() + _FLOW_S,
        )
        url = await self._provider.authorization_url(
            redirect_uri=self._redirect_uri(request), state=flow.state, nonce=flow.nonce, verifier=flow.verifier
        )
        response = RedirectResponse(url, status_code=303)
        sealed = self._sealer.seal(json.dumps(asdict(flow)).encode(), name=FLOW_PURPOSE)
        set_cookie(response, FLOW_COOKIE, sealed, _FLOW_S)
        return response

    async def end(self, request: Request) -> Response:
        """Takes the provider's answer and begins a session."""
        flow = self._flow(request)
        given = request.query_params
        # Whoever sends a person here with a code of their own does not know what this browser began with.
        if flow is None or not hmac.compare_digest(flow.state.encode(), given.get("state", "").encode()):
            raise Unauthenticated("The sign-in was begun elsewhere or waited too long. Begin again.")
        if "code" not in given:
            raise Unauthenticated("The identity provider did not sign you in. Begin again.")
        person = await self._provider.identity(
            given["code"], redirect_uri=self._redirect_uri(request), nonce=flow.nonce, verifier=flow.verifier
        )
        if subject_kind(person.email) is not SubjectKind.PERSON:
            raise AuthInsufficient("The address that the identity provider names cannot be used.")
        org = await self._org(person.email, flow.org)
        signed_in = await self._sessions.begin(org, person.email, "oidc")
        await self._accounts.know(
            org, person.email, by=person.email, email=person.email, display_name=person.name[:256] or None
        )
        response = RedirectResponse(f"{self._public.prefix}{flow.return_to}", status_code=303)
        clear_cookie(response, FLOW_COOKIE)
        return begun(signed_in, response)

    async def _org(self, subject: str, asked: str) -> str:
        """Returns the organisation that a person acts in: the one asked for, else the first of those with a grant."""
        held = await self._grants.orgs_of(subject, _MAX_ORGS)
        if not held or (asked and asked not in held):
            raise AuthInsufficient("You hold nothing here yet. Ask an administrator for a role on a namespace.")
        return asked or held[0]

    def _flow(self, request: Request) -> Flow | None:
        try:
            opened = self._sealer.open(request.cookies.get(FLOW_COOKIE, ""), name=FLOW_PURPOSE)
        except SealBroken:
            return None
        flow = Flow(**json.loads(opened))
        return flow if self._clock.now().timestamp() < flow.until_s else None

    def _redirect_uri(self, request: Request) -> str:
        return f"{self._public.base(request)}{CALLBACK_PATH}"

    def _answering(self, handler: Handler) -> Handler:
        """Returns a handler that forgets, when it fails, what the sign-in began with."""

        async def answer(request: Request) -> Response:
            response = await handler(request)
            if response.status_code >= 400:
                clear_cookie(response, FLOW_COOKIE)
            return response

        return answer
