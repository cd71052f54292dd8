"""What every request passes first: its identifier, whose page it comes from, and the headers of every answer."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from loom_common.errors import InternalError, LoomError, MalformedRequest
from loom_common.telemetry import observe
from loom_gateway.calls.caller import SINGLE_HEADERS, request_id_of
from loom_gateway.http.answers import error_response
from loom_gateway.http.origins import OriginPolicy, is_preflight

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

# As they stand in a message: compared and added as bytes, once for every request.
_RAW_HEADERS: Final = tuple((name.lower().encode(), value.encode()) for name, value in _HEADERS.items())
_SINGLE: Final = frozenset(name.encode() for name in SINGLE_HEADERS)
_REQUEST_ID: Final = b"x-request-id"

_log = structlog.get_logger(__name__)


Refused = Callable[[str, Headers, str, LoomError], None]
"""Takes note of a request that was refused here: its path, its headers, its identifier and why."""


class Edge:
    """Outermost ASGI layer.

    Args:
        app: The routes.
        policy: Which hosts and origins are served.
        prefix: Path under which a proxy publishes the gateway; taken off where the proxy left it on.
        origin_checked: Paths whose every method counts as changing something, and all that lies under them.
        refused: Takes note of what is refused here.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        policy: OriginPolicy,
        prefix: str = "",
        origin_checked: tuple[str, ...] = (),
        refused: Refused = lambda _path, _headers, _request_id, _error: None,
    ) -> None:
        self._app = app
        self._policy = policy
        self._prefix = prefix
        self._origin_checked = origin_checked
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = request_id_of(headers)
        scope = self._placed(scope)
        scope.setdefault("state", {})[REQUEST_ID_STATE] = request_id
        page = self._policy.allowed_origin(headers)
        started_s, status = time.monotonic(), 0

        async def finished(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = self._complete(message.get("headers", ()), request_id, page)
            await send(message)

        try:
            self._check(scope, headers, request_id)
            if page and is_preflight(scope["method"], headers):
                await Response(status_code=204, headers=self._policy.preflight(page))(scope, receive, finished)
                return
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

    def _check(self, scope: Scope, headers: Headers, request_id: str) -> None:
        path: str = scope["path"]
        changing = scope["method"] not in _SAFE_METHODS or any(
            path == checked or path.startswith(f"{checked}/") for checked in self._origin_checked
        )
        try:
            _check_unambiguous(headers)
            self._policy.check(headers, state_changing=changing)
        except LoomError as error:
            self._refused(path, headers, request_id, error)
            raise

    def _complete(self, given: Iterable[tuple[bytes, bytes]], request_id: str, page: str) -> list[tuple[bytes, bytes]]:
        """Returns the headers of an answer with what every one has."""
        found = [pair for pair in given if pair[0] != _REQUEST_ID]
        names = {name for name, _ in found}
        found += [pair for pair in _RAW_HEADERS if pair[0] not in names]
        found.append((_REQUEST_ID, request_id.encode()))
        if self._policy.has_allowed_origins:
            headers = MutableHeaders(raw=found)
            headers.add_vary_header("Origin")
            for name, value in self._policy.answers(page).items():
                headers.setdefault(name, value)
            return headers.raw
        return found

    def _placed(self, scope: Scope) -> Scope:
        path: str = scope["path"]
        if self._prefix and (path == self._prefix or path.startswith(f"{self._prefix}/")):
            return {**scope, "path": path[len(self._prefix) :] or "/"}
        return dict(scope)


def _check_unambiguous(headers: Headers) -> None:
    if _framed_twice(headers):
        raise MalformedRequest("The request must carry Content-Length or Transfer-Encoding, not both.")
    seen: set[bytes] = set()
    for name, _ in headers.raw:
        if name in seen:
            shown = name.decode()
            raise MalformedRequest(f"The request must carry one {shown} header.", detail={"header": shown})
        if name in _SINGLE:
            seen.add(name)


def _framed_twice(headers: Headers) -> bool:
    """Returns whether a proxy may see the request end elsewhere: what follows could be another caller's request."""
    return "transfer-encoding" in headers and "content-length" in headers
