"""Which names the gateway answers to, and which web pages may talk to it.

A page in somebody's browser can reach a server on the same machine. It must not be able to use it: pages of other
origins are refused outright, and on loopback so is every name but the machine's own, since a page may point a name of
its own at 127.0.0.1 and then be of the "same" origin.
"""

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from loom_common.errors import AuthInsufficient, MalformedRequest

_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


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

    @property
    def host(self) -> str:
        """Name and port, as a `Host` header carries them."""
        return urlsplit(self.url).netloc.lower()


class OriginPolicy:
    """Decides by `Host`, `Origin` and `Sec-Fetch-Site` whether a request is served.

    Args:
        public: Where callers find the gateway.
        loopback: Whether it listens on loopback alone.
    """

    def __init__(self, public: PublicAddress, *, loopback: bool) -> None:
        self._public = public
        self._loopback = loopback

    def check(self, headers: Headers, *, state_changing: bool) -> None:
        """Returns where the request may be served.

        Raises:
            MalformedRequest: It names no host, or two.
            AuthInsufficient: It names a host that is not ours, or comes from a page of another origin.
        """
        hosts = headers.getlist("host")
        if len(hosts) != 1:
            raise MalformedRequest("The request must carry one Host header.")
        host = hosts[0].strip().lower()
        if self._loopback and host != self._public.host and _name(host) not in _LOCAL_NAMES:
            raise AuthInsufficient(
                "The gateway does not answer to this host name; set LOOM_PUBLIC_URL if it is its own.",
                detail={"reason": "foreign_host"},
            )
        if state_changing and not self._is_own_page(headers, host):
            raise AuthInsufficient(
                "Pages of other origins may not use the gateway.", detail={"reason": "foreign_origin"}
            )

    def _is_own_page(self, headers: Headers, host: str) -> bool:
        if headers.get("sec-fetch-site", "").lower() in ("cross-site", "same-site"):
            return False
        origins = headers.getlist("origin")
        if not origins:
            return True  # no browser sends a request that changes anything without one
        if len(origins) > 1:
            return False
        origin = origins[0].strip().lower()
        return origin in (f"http://{host}", f"https://{host}", self._public.origin) and bool(origin)


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
