"""Lets a signed-in person's browser call operations: the cookie buys a token of five minutes, per request."""

import hmac
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from loom_common.errors import AuthInsufficient, LoomError
from loom_gateway.http.answers import error_response
from loom_gateway.http.edge import REQUEST_ID_STATE
from loom_gateway.http.origins import PublicAddress
from loom_gateway.identity.app.sessions import SessionDesk, SignedIn
from loom_gateway.signin.cookies import session_cookie

CSRF_HEADER: Final = "x-loom-csrf"
"""Carries the session's token against forged requests, which only pages of ours are told."""

# Operations alone: MCP is for programs, which hold tokens.
_PREFIX: Final = "/v1/"
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class SessionTokens:
    """ASGI layer that gives a request with a session's cookie, and no token of its own, the session's token.

    Args:
        app: The routes.
        sessions: The sessions.
        public: Where callers find the gateway.
    """

    def __init__(self, app: ASGIApp, *, sessions: SessionDesk, public: PublicAddress) -> None:
        self._app = app
        self._sessions = sessions
        self._public = public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] == "http" and scope["path"].startswith(_PREFIX) and scope["method"] not in _SAFE_METHODS:
            headers = Headers(scope=scope)
            if "authorization" not in headers and "cookie" in headers:
                try:
                    await self._give_token(scope)
                except LoomError as error:
                    await error_response(error, scope["state"][REQUEST_ID_STATE])(scope, receive, send)
                    return
        await self._app(scope, receive, send)

    async def _give_token(self, scope: Scope) -> None:
        """Adds the session's token to the request; one whose session has ended stays without.

        Raises:
            AuthInsufficient: The request is not of one of our pages.
            Unauthenticated: The session ended just now.
        """
        request = Request(scope)
        signed_in = await self._sessions.of_cookie(session_cookie(request))
        if signed_in is None:
            return
        check_own_page(request, signed_in, self._public)
        token = await self._sessions.token(signed_in.session)
        MutableHeaders(scope=scope)["authorization"] = f"Bearer {token}"


def check_own_page(request: Request, signed_in: SignedIn, public: PublicAddress) -> None:
    """Returns if a request that carries a session's cookie was sent by one of our pages.

    A browser sends the cookie whichever page asks, so each request that changes something proves where it comes from:
    by its origin, and by the token that our pages alone are told.

    Raises:
        AuthInsufficient: It was not.
    """
    origin = request.headers.get("origin", "").lower()
    host = request.headers.get("host", "").lower()
    own = {public.origin} if public.origin else {f"http://{host}", f"https://{host}"}
    shown = request.headers.get(CSRF_HEADER, "")
    if origin and origin not in own:
        raise AuthInsufficient("Pages of other origins may not use a session.", detail={"reason": "foreign_origin"})
    if not hmac.compare_digest(shown.encode(), signed_in.csrf_token.encode()):
        raise AuthInsufficient(
            f"The request lacks the session's own token in the header {CSRF_HEADER}; read it from `/session`.",
            detail={"reason": "csrf"},
        )
