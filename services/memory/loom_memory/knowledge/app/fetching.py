"""Documents from their URLs: from allowed hosts alone, never from inside the network, within bounds.

The address that was looked at is the one that is connected to, so that a name that answers differently the second time
leads nowhere else. A redirect is followed on the same host alone, and looked at anew.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import SplitResult, urljoin, urlsplit

import httpx2

from loom_common.errors import BackendUnavailable, InvalidArgument, PayloadTooLarge

_FIELD: Final = "url"
_MOST_REDIRECTS: Final = 3
_PORTS: Final = {"http": 80, "https": 443}
_ACCEPTED: Final = "text/markdown, text/html, text/plain, application/pdf, */*;q=0.5"

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """What an address answered."""

    content: bytes
    media_type: str


class Fetch(Protocol):
    """Reads a document from its URL."""

    async def __call__(self, url: str) -> Fetched:
        """Returns the document.

        Raises:
            InvalidArgument: The URL may not be read, or answers with no document.
            PayloadTooLarge: The document is too long.
            BackendUnavailable: It did not answer in time.
        """
        ...


async def addresses_of(host: str, port: int) -> list[str]:
    """Returns the addresses of a host."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(place[0]) for *_, place in found]


def is_public(address: str) -> bool:
    """Says whether an address is one of the internet, and none of a machine, a network or a tunnel into one."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    inner: ipaddress.IPv4Address | None = None
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo[1] if found.teredo else None)
        # NAT64 carries an address of the fourth version in its last bits.
        if found in _NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
    if inner is not None:
        return is_public(str(inner))
    return (
        found.is_global
        and not (found.is_multicast or found.is_reserved)
        and not any(found in network for network in _NOT_PUBLIC if network.version == found.version)
    )


_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
# What Python takes for addresses of the internet: of a site, of a provider's own gear, and of documentation.
_NOT_PUBLIC: Final = tuple(map(ipaddress.ip_network, ("fec0::/10", "192.0.0.0/24", "3fff::/20")))


class UrlFetch:
    """Reads documents from the hosts of a list."""

    def __init__(
        self,
        allowlist: Sequence[str],
        *,
        max_bytes: int,
        timeout_s: float,
        resolve: Resolve = addresses_of,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        # `transport` stands in for the network in tests.
        self._allowlist = tuple(allowlist)
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._resolve = resolve
        self._transport = transport

    async def __call__(self, url: str) -> Fetched:
        """See `Fetch`."""
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                httpx2.AsyncClient(
                    trust_env=False, follow_redirects=False, timeout=self._timeout_s, transport=self._transport
                ) as client,
            ):
                for _ in range(_MOST_REDIRECTS + 1):
                    found = await self._read(client, url)
                    if isinstance(found, Fetched):
                        return found
                    url = self._redirected(url, found)
                raise InvalidArgument.of(_FIELD, f"leads on more than {_MOST_REDIRECTS} times")
        except TimeoutError:
            raise BackendUnavailable(f"The URL did not answer within {self._timeout_s:g} s.") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError):
            raise BackendUnavailable("The URL could not be read.") from None

    async def _read(self, client: httpx2.AsyncClient, url: str) -> Fetched | str:
        """Returns the document, or where it is said to be."""
        target, extensions, headers = await self._target(url)
        async with client.stream("GET", target, headers=headers, extensions=extensions) as answer:
            if answer.is_redirect:
                return str(answer.headers.get("location", ""))
            if answer.status_code != httpx2.codes.OK:
                raise InvalidArgument.of(_FIELD, f"answers with the status {answer.status_code}")
            # A few bytes may unpack to gigabytes before their length is known.
            if answer.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
                raise InvalidArgument.of(_FIELD, "answers with packed content, which was not asked for")
            content = bytearray()
            async for piece in answer.aiter_raw():
                content += piece
                if len(content) > self._max_bytes:
                    raise PayloadTooLarge(f"The document has more than {self._max_bytes:,} bytes.")
            return Fetched(bytes(content), str(answer.headers.get("content-type", ""))[:128])

    async def _target(self, url: str) -> tuple[str, dict[str, str], dict[str, str]]:
        """Returns what to ask: the address that was looked at, under the host's name."""
        parts = self._allowed(url)
        host = parts.hostname or ""
        port = parts.port or _PORTS[parts.scheme]
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError):
            # Python raises the latter for a label that is empty or too long.
            raise InvalidArgument.of(_FIELD, "names a host that is not known") from None
        if not addresses or not all(map(is_public, addresses)):
            raise InvalidArgument.of(_FIELD, "leads to an address inside a network, which is never read")
        address = ipaddress.ip_address(addresses[0])
        literal = f"[{address}]" if address.version == 6 else str(address)
        named = host if port == _PORTS[parts.scheme] else f"{host}:{port}"
        pinned = parts._replace(netloc=f"{literal}:{port}", fragment="").geturl()
        headers = {"host": named, "accept": _ACCEPTED, "accept-encoding": "identity", "user-agent": "Loom"}
        return pinned, {"sni_hostname": host}, headers

    def _allowed(self, url: str) -> SplitResult:
        if not self._allowlist:
            raise InvalidArgument.of(
                _FIELD, "cannot be read: this deployment allows no hosts (LOOM_KNOWLEDGE_URL_ALLOWLIST). Send the text"
            )
        try:
            parts = urlsplit(url)
            host, port = (parts.hostname or "").lower().rstrip("."), parts.port
        except ValueError:
            raise InvalidArgument.of(_FIELD, "is no URL") from None
        if parts.scheme not in _PORTS or not host:
            raise InvalidArgument.of(_FIELD, "must begin with https:// or http:// and name a host")
        if not host.isascii():
            raise InvalidArgument.of(_FIELD, "must name its host in ASCII, as `xn--`")
        if parts.username is not None or parts.password is not None:
            raise InvalidArgument.of(_FIELD, "must hold no user name or password")
        if not any(_allows(entry, host, port, parts.scheme) for entry in self._allowlist):
            raise InvalidArgument.of(_FIELD, f"is of {host}, which LOOM_KNOWLEDGE_URL_ALLOWLIST does not allow")
        return parts

    def _redirected(self, url: str, location: str) -> str:
        onward = urljoin(url, location)
        before, after = urlsplit(url), urlsplit(onward)
        if (after.hostname or "") != (before.hostname or "") or (before.scheme, after.scheme) == ("https", "http"):
            raise InvalidArgument.of(_FIELD, "leads on to another host, which is not followed; name that one itself")
        return onward


def _allows(entry: str, host: str, port: int | None, scheme: str) -> bool:
    name, _, allowed = entry.partition(":")
    if (port or _PORTS[scheme]) != (int(allowed) if allowed else _PORTS[scheme]):
        return False
    return host.endswith(name[1:]) and len(host) > len(name) - 1 if name.startswith("*.") else host == name
