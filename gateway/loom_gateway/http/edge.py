"""What every request passes first: its identifier, whose page it comes from, and the headers of every answer."""

import time
from collections.abc import Mapping
from typing import Final

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from loom_common.errors import InternalError, LoomError, MalformedRequest
from loom_common.telemetry import observe
from loom_gateway.calls.caller import SINGLE_HEADERS, request_id_of
from loom_gateway.http.answers import error_response
from loom_gateway.http.origins import OriginPolicy

REQUEST_ID_STATE: Final = "request_id"
ROUTE_STATE: Final = "route"
"""Where a route leaves its name for the metrics, of which there must be few: paths are the callers' to make up."""

_OTHER_ROUTE: Final = "other"

# What access logs of proxies call a request whose client left before the answer.
_CLIENT_GONE: Final = 499
_KNOWN_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
_HEADERS: Final[Mapping[str, str]] = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    # Answers are data; the page that shows the API sets a policy of its own.
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}

_log = structlog.get_logger(__name__)


class Edge:
    """Outermost ASGI layer.

    Args:
        app: The routes.
        policy: Which hosts and origins are served.
        prefix: Path under which a proxy publishes the gateway; taken off where the proxy left it on.
        origin_checked: Paths whose every method counts as changing something.
    """

    def __init__(
        self, app: ASGIApp, *, policy: OriginPolicy, prefix: str = "", origin_checked: frozenset[str] = frozenset()
    ) -> None:
        self._app = app
        self._policy = policy
        self._prefix = prefix
        self._origin_checked = origin_checked

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = request_id_of(headers)
        scope = self._placed(scope)
        scope.setdefault("state", {})[REQUEST_ID_STATE] = request_id
        started_s, status = time.monotonic(), 0

        async def finished(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _complete(MutableHeaders(scope=message), request_id)
                if _framed_twice(headers):
                    MutableHeaders(scope=message)["Connection"] = "close"
            await send(message)

        try:
            _check_unambiguous(headers)
            changing = scope["method"] not in _SAFE_METHODS or scope["path"] in self._origin_checked
            self._policy.check(headers, state_changing=changing)
            await self._app(scope, receive, finished)
        except LoomError as error:
            if status:
                raise
            await error_response(error, request_id)(scope, receive, finished)
        except Exception:
            _log.exception("request_failed", path=scope["path"], request_id=request_id)
            if status:
                raise
            await error_response(InternalError(), request_id)(scope, receive, finished)
        finally:
            observe(
                "loom.http.server.duration",
                time.monotonic() - started_s,
                route=scope["state"].get(ROUTE_STATE, _OTHER_ROUTE),
                method=scope["method"] if scope["method"] in _KNOWN_METHODS else _OTHER_ROUTE,
                status=str(status or _CLIENT_GONE),
            )

    def _placed(self, scope: Scope) -> Scope:
        path: str = scope["path"]
        if self._prefix and (path == self._prefix or path.startswith(f"{self._prefix}/")):
            return {**scope, "path": path[len(self._prefix) :] or "/"}
        return dict(scope)


def _check_unambiguous(headers: Headers) -> None:
    if _framed_twice(headers):
        raise MalformedRequest("The request must carry Content-Length or Transfer-Encoding, not both.")
    for name in SINGLE_HEADERS:
        if len(headers.getlist(name)) > 1:
            raise MalformedRequest(f"The request must carry one {name} header.", detail={"header": name})


def _framed_twice(headers: Headers) -> bool:
    """Returns whether a proxy may see the request end elsewhere: what follows could be another caller's request."""
    return "transfer-encoding" in headers and "content-length" in headers


def _complete(headers: MutableHeaders, request_id: str) -> None:
    headers["X-Request-Id"] = request_id
    for name, value in _HEADERS.items():
        headers.setdefault(name, value)
