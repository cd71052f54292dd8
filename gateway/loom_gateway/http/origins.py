"""Which names the gateway answers to, and which web pages may talk to it.

A page in somebody's browser can reach a server on the same machine. It must not be able to use it: pages of other
origins are refused outright, and on loopback so is every name but the machine's own, since a page may point a name of
its own at 127.0.0.1 and then be of the "same" origin. Origins that the operator names may call; their pages are told so
in the words of CORS, and never that they may send cookies along.
"""

import ipaddress
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request

from loom_common.errors import AuthInsufficient, MalformedRequest
from loom_gateway.calls.caller import CALLER_HEADERS

_HOST: Final = re.compile(r"[a-z0-9._~%-]*(:\d*)?|\[[0-9a-f:.%]+\](:\d*)?")
_LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_ALLOWED_METHODS: Final = "GET, POST"
_OTHER_HEADERS: Final = (
    "accept",
    "content-type",
    "content-encoding",
    "x-request-id",
    "traceparent",
    "tracestate",
    "x-loom-toolset",
    "mcp-protocol-version",
    "mcp-method",
    "mcp-name",
    "mcp-session-id",
)
_ALLOWED_HEADERS: Final = ", ".join((*CALLER_HEADERS, *_OTHER_HEADERS))
_SHOWN_HEADERS: Final = "X-Request-Id, Retry-After, WWW-Authenticate, Mcp-Session-Id"
# Source: chosen. Browsers ask again after at most two hours whatever is said.
_PREFLIGHT_S: Final = "600"


@dataclass(frozen=True, slots=True)
class PublicAddress:
    """Where callers find the gateway, as configured; empty where it was not said."""

    url: str = ""

    @property
    def prefix(self) -> str:
        """Path under which it is published, without a slash at the end; empty at the root."""
        return urlsplit(self.url).path.rstrip("/")

    @property
    def origin(self) -> str:
        """Origin of its pages."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}".lower() if parts.netloc else ""

    def base(self, request: Request) -> str:
        """Returns where the gateway is, without a slash at the end: as configured, else as the request found it."""
        return self.url.rstrip("/") or f"{request.url.scheme}://{request.headers['host']}"

    @property
    def host(self) -> str:
        """Name and port, as a `Host` header carries them."""
        return urlsplit(self.url).netloc.lower()


class OriginPolicy:
    """Decides by `Host`, `Origin` and `Sec-Fetch-Site` whether a request is served.

    Args:
        public: Where callers find the gateway.
        loopback: Whether it listens on loopback alone.
        hosts: Names that it answers to beside its public one, each with a port or for every port. Empty: on loopback
            none, else every name.
        origins: Origins of other pages that may call it, such as `https://app.example.org`.
    """

    def __init__(
        self, public: PublicAddress, *, loopback: bool, hosts: Collection[str] = (), origins: Collection[str] = ()
    ) -> None:
        self._public = public
        self._guarded = loopback or bool(hosts)
        self._hosts = frozenset(host.lower() for host in hosts) | ({public.host} if public.host else set())
        self._origins = frozenset(origin.lower() for origin in origins)

    def check(self, headers: Headers, *, state_changing: bool) -> None:
        """Returns where the request may be served.

        Raises:
            MalformedRequest: It names no host, two, or what is none.
            AuthInsufficient: It names a host that is not ours, or comes from a page of another origin.
        """
        hosts = headers.getlist("host")
        if len(hosts) != 1:
            raise MalformedRequest("The request must carry one Host header.")
        host = hosts[0].strip().lower()
        if self._guarded and not self._is_own_host(host):
            raise AuthInsufficient(
                "The gateway does not answer to this host name; set LOOM_PUBLIC_URL or LOOM_HTTP_ALLOWED_HOSTS if it "
                "is its own.",
                detail={"reason": "foreign_host"},
            )
        if not _HOST.fullmatch(host):
            # Addresses that answers name are made from it, where no public one is set.
            raise MalformedRequest("The Host header must be a name or an address, with or without a port.")
        if state_changing and not self._is_admitted_page(headers, host):
            raise AuthInsufficient(
                "Pages of other origins may not use the gateway.", detail={"reason": "foreign_origin"}
            )

    def allowed_origin(self, headers: Headers) -> str:
        """Returns the page's origin where it is one of those that may call; empty otherwise."""
        if not self._origins:
            return ""
        origins = headers.getlist("origin")
        return origins[0] if len(origins) == 1 and origins[0].strip().lower() in self._origins else ""

    def answers(self, origin: str) -> Mapping[str, str]:
        """Returns what every answer tells the browser of a page of an allowed origin; empty for no origin."""
        if not origin:
            return {}
        return {"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": _SHOWN_HEADERS}

    def preflight(self, origin: str) -> Mapping[str, str]:
        """Returns what a browser is told that asks before it lets a page of an allowed origin call."""
        return {
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Allow-Methods": _ALLOWED_METHODS,
            "Access-Control-Allow-Headers": _ALLOWED_HEADERS,
            "Access-Control-Max-Age": _PREFLIGHT_S,
        }

    @property
    def has_allowed_origins(self) -> bool:
        """Whether answers depend on the page that asks."""
        return bool(self._origins)

    def _is_own_host(self, host: str) -> bool:
        name = "" if "@" in host else _name(host)
        return host in self._hosts or (bool(name) and (name in self._hosts or name in _LOCAL_NAMES))

    def _is_admitted_page(self, headers: Headers, host: str) -> bool:
        if self.allowed_origin(headers):
            return True
        if headers.get("sec-fetch-site", "").lower() in ("cross-site", "same-site"):
            return False
        origins = headers.getlist("origin")
        if not origins:
            return True  # no browser sends a request that changes anything without one
        if len(origins) > 1:
            return False
        origin = origins[0].strip().lower()
        return origin in (f"http://{host}", f"https://{host}", self._public.origin) and bool(origin)


def is_preflight(method: str, headers: Headers) -> bool:
    """Returns whether a browser asks if it may send a request of a page of another origin."""
    return method == "OPTIONS" and "origin" in headers and "access-control-request-method" in headers


def is_loopback(host: str) -> bool:
    """Returns whether an address to listen on is reached from this machine alone."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
