"""`/sign-in/device`: the device flow of RFC 8628, by which `loom login` signs in."""

from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Route

from loom_common.auth.claims import Role
from loom_common.errors import LoomError, MalformedRequest, Unauthenticated
from loom_gateway.http.answers import json_response
from loom_gateway.http.edge import ROUTE_STATE
from loom_gateway.http.origins import PublicAddress
from loom_gateway.identity.app.device import CODE_LIFE, INTERVAL_S, DeviceDesk, Pending
from loom_gateway.identity.app.sessions import SessionDesk, SignedIn
from loom_gateway.identity.domain.sessions import ClientShare
from loom_gateway.signin.cookies import session_cookie
from loom_gateway.signin.routes import PAGE_POLICY, STATIC, answering, read_json
from loom_gateway.signin.tokens import check_own_page

PAGE_PATH: Final = "/sign-in/device"
CODE_PATH: Final = "/sign-in/device/code"
APPROVE_PATH: Final = "/sign-in/device/approve"
TOKEN_PATH: Final = "/sign-in/device/token"  # noqa: S105 - an address

DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
LOGIN: Final = "login"

# A program refreshes its token; a role that was taken away ends it at once.
_LIFE_S: Final = 3600
_SHARE: Final = ClientShare("loom-cli", Role.ADMIN, _LIFE_S, whole=True)


class DeviceRoutes:
    """Answers programs that sign in without a browser, and the people who let them.

    Args:
        device: Codes and approvals.
        sessions: The sessions.
        public: Where callers find the gateway.
    """

    def __init__(self, device: DeviceDesk, sessions: SessionDesk, public: PublicAddress) -> None:
        self._device = device
        self._sessions = sessions
        self._public = public

    @property
    def routes(self) -> list[BaseRoute]:
        """The routes, to be mounted at the root."""
        return [
            Route(PAGE_PATH, self.page, methods=["GET"]),
            Route(CODE_PATH, answering(self.code), methods=["POST"]),
            Route(APPROVE_PATH, answering(self.approve), methods=["POST"]),
            Route(TOKEN_PATH, answering(self.token), methods=["POST"]),
        ]

    async def page(self, request: Request) -> Response:
        """Answers with the page on which a person types the code."""
        request.scope["state"][ROUTE_STATE] = PAGE_PATH
        return FileResponse(
            STATIC / "device.html", media_type="text/html", headers={"Content-Security-Policy": PAGE_POLICY}
        )

    async def code(self, request: Request) -> Response:
        """Gives a program its codes."""
        made = self._device.begin()
        return json_response(
            {
                "device_code": made.device_code,
                "user_code": made.user_code,
                "verification_uri": f"{self._public.base(request)}{PAGE_PATH}",
                "expires_in": int(CODE_LIFE.total_seconds()),
                "interval": INTERVAL_S,
            }
        )

    async def approve(self, request: Request) -> Response:
        """Takes the code that a signed-in person typed."""
        found = await self._sessions.of_cookie(session_cookie(request))
        if found is None:
            raise Unauthenticated("Sign in first, then type the code.")
        check_own_page(request, found, self._public)
        await self._device.approve(found, _text(await read_json(request), "user_code"))
        return json_response({"approved": True})

    async def token(self, request: Request) -> Response:
        """Gives a program its token: for an approved code, or anew for what it refreshes with."""
        body = await read_json(request)
        grant = _text(body, "grant_type")
        if grant == DEVICE_GRANT:
            try:
                signed_in = await self._device.finish(_text(body, "device_code"))
            except Pending:
                return _problem("authorization_pending")
            except Unauthenticated as error:
                return _problem("expired_token", error)
            return await self._given(signed_in)
        if grant == "refresh_token":
            held = await self._sessions.of_cookie(_text(body, "refresh_token"), methods=(LOGIN,))
            return _problem("invalid_grant") if held is None else await self._given(held)
        return _problem("unsupported_grant_type")

    async def _given(self, signed_in: SignedIn) -> Response:
        session = signed_in.session
        answer: dict[str, JsonValue] = {
            "access_token": await self._sessions.client_token(session, _SHARE),
            "token_type": "Bearer",
            "expires_in": _LIFE_S,
            "refresh_token": signed_in.cookie,
            "subject": session.subject,
            "org": session.org,
            "session": session.sid,
        }
        return json_response(answer)


def _problem(code: str, error: LoomError | None = None) -> Response:
    """Returns a refusal in the shape of RFC 6749, which clients of the flow know."""
    said: dict[str, JsonValue] = {"error_description": error.message} if error else {}
    return json_response({"error": code, **said}, status=400)


def _text(body: Mapping[str, object], name: str) -> str:
    found = body.get(name)
    if not isinstance(found, str) or not found:
        raise MalformedRequest(f"The request must be a JSON object with the text {name}.")
    return found
