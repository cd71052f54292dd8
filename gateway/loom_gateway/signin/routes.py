"""The routes of sign-in: the page, the link, who is signed in, and the way out."""

import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Route

from loom_common.errors import LoomError, MalformedRequest, Unauthenticated
from loom_common.times import format_time
from loom_gateway.http.answers import error_response, json_response
from loom_gateway.http.body import read_body
from loom_gateway.http.edge import REQUEST_ID_STATE, ROUTE_STATE
from loom_gateway.http.origins import PublicAddress
from loom_gateway.identity.app.sessions import SessionDesk, SignedIn
from loom_gateway.signin.cookies import SESSION_COOKIE, clear_cookie, session_cookie, set_cookie
from loom_gateway.signin.tokens import check_own_page

SIGN_IN_PATH: Final = "/sign-in"
LINK_PATH: Final = "/sign-in/link"
SIGN_OUT_PATH: Final = "/sign-out"
SESSION_PATH: Final = "/session"

# A link's secret and an address fit many times.
_MAX_BODY: Final = 8_192
# Sealed beside what a sign-in begins with, it must fit a cookie, of which browsers keep 4,096 bytes.
_MAX_RETURN: Final = 2_400
STATIC: Final = Path(__file__).parent.parent / "static"
PAGE_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)


Handler = Callable[[Request], Awaitable[Response]]


class SignInRoutes:
    """Answers what belongs to sign-in.

    Args:
        sessions: The sessions.
        public: Where callers find the gateway.
        providers: Ways to sign in beside links, by their address, such as that of an identity provider.
    """

    def __init__(self, sessions: SessionDesk, public: PublicAddress, providers: Sequence[tuple[str, str]] = ()) -> None:
        self._sessions = sessions
        self._public = public
        self._providers = list(providers)

    @property
    def routes(self) -> list[BaseRoute]:
        """The routes, to be mounted at the root."""
        return [
            Route(SIGN_IN_PATH, self.page, methods=["GET"]),
            Route(LINK_PATH, answering(self.link), methods=["POST"]),
            Route(SESSION_PATH, answering(self.who), methods=["GET"]),
            Route(SIGN_OUT_PATH, answering(self.sign_out), methods=["POST"]),
        ]

    async def page(self, request: Request) -> Response:
        """Answers with the page on which people sign in."""
        request.scope["state"][ROUTE_STATE] = SIGN_IN_PATH
        return FileResponse(
            STATIC / "sign-in.html", media_type="text/html", headers={"Content-Security-Policy": PAGE_POLICY}
        )

    async def link(self, request: Request) -> Response:
        """Signs in whoever holds the secret of a link."""
        body = await read_json(request)
        secret = body.get("secret")
        if not isinstance(secret, str) or not secret:
            raise MalformedRequest("The request must be a JSON object with the link's secret.")
        return _signed_in(await self._sessions.use_link(secret))

    async def who(self, request: Request) -> Response:
        """Tells a page who is signed in, and its token against forged requests."""
        found = await self._sessions.of_cookie(session_cookie(request))
        if found is None:
            answer: dict[str, JsonValue] = {
                "signed_in": False,
                "providers": [{"name": name, "url": url} for name, url in self._providers],
            }
            return json_response(answer)
        return json_response(_told(found))

    async def sign_out(self, request: Request) -> Response:
        """Ends the session and every token that was made in it."""
        found = await self._sessions.of_cookie(session_cookie(request))
        if found is None:
            raise Unauthenticated("You are not signed in.")
        check_own_page(request, found, self._public)
        await self._sessions.close(found.session)
        response = json_response({"signed_in": False})
        clear_cookie(response, SESSION_COOKIE)
        return response


def answering(handler: Handler) -> Handler:
    """Returns a handler whose errors are answered as those of operations are, and whose answers no cache keeps."""

    async def answer(request: Request) -> Response:
        request.scope["state"][ROUTE_STATE] = request.url.path
        try:
            response = await handler(request)
        except LoomError as error:
            response = error_response(error, request.scope["state"][REQUEST_ID_STATE])
        response.headers["Cache-Control"] = "no-store"
        return response

    return answer


def begun(signed_in: SignedIn, response: Response) -> Response:
    """Returns an answer that begins a session in the browser."""
    life_s = int((signed_in.session.expires_at - signed_in.session.created_at).total_seconds())
    set_cookie(response, SESSION_COOKIE, signed_in.cookie, life_s)
    return response


def own_path(return_to: str) -> str:
    """Returns an address of ours to go to after signing in; the root for any other.

    Only a path is taken: `//host`, a scheme or a backslash would lead a person who has just signed in elsewhere.
    """
    own = return_to.startswith("/") and not return_to.startswith("//") and "\\" not in return_to
    # Browsers pass over tabs and line ends, so that `/<tab>/host` would be `//host`.
    plain = return_to.isascii() and return_to.isprintable() and len(return_to) <= _MAX_RETURN
    return return_to if own and plain else "/"


def _signed_in(signed_in: SignedIn) -> Response:
    return begun(signed_in, json_response(_told(signed_in)))


def _told(signed_in: SignedIn) -> dict[str, JsonValue]:
    session = signed_in.session
    return {
        "signed_in": True,
        "org": session.org,
        "subject": session.subject,
        "session": session.sid,
        "method": session.method,
        "csrf_token": signed_in.csrf_token,
        "expires_at": format_time(session.expires_at),
    }


async def read_json(request: Request) -> dict[str, object]:
    """Returns the body of a request, a small JSON object.

    Raises:
        PayloadTooLarge: It is too long.
        DeadlineExceeded: It did not come in time.
        Cancelled: Its client went away.
        MalformedRequest: It is none.
    """
    body = await read_body(request.receive, limit_bytes=_MAX_BODY)
    # What a form of another page can send without asking first is no JSON.
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise MalformedRequest("The request must be application/json.")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise MalformedRequest("The body is not JSON.") from None
    if not isinstance(found, dict):
        raise MalformedRequest("The body must be a JSON object.")
    return found
