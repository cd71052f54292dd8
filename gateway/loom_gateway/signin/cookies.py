"""The cookies of sign-in: sent back to this host alone, over what a browser holds to be safe, read by no script."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

SESSION_COOKIE: Final = "__Host-loom"
"""Carries the session. The prefix makes browsers refuse it from another host, a path or an unsafe connection; they hold
`http://localhost` to be safe."""

FLOW_COOKIE: Final = "__Host-loom-sign-in"
"""Carries, sealed, what a sign-in with an identity provider began with."""


def set_cookie(response: Response, name: str, value: str, max_age_s: int) -> None:
    """Sets a cookie."""
    response.set_cookie(name, value, max_age=max_age_s, path="/", secure=True, httponly=True, samesite="lax")


def clear_cookie(response: Response, name: str) -> None:
    """Takes a cookie away."""
    response.delete_cookie(name, path="/", secure=True, httponly=True, samesite="lax")


def session_cookie(request: Request) -> str:
    """Returns the session's cookie; empty where there is none."""
    return request.cookies.get(SESSION_COOKIE, "")
