"""Clients that register themselves, and where they may be answered."""

import hashlib
import json
import re
from typing import Final
from urllib.parse import SplitResult, urlsplit

from pydantic import JsonValue

from loom_gateway.oauth.errors import NoClient, OAuthError
from loom_gateway.oauth.sealed import Client, Seals

_MAX_URIS: Final = 8
_MAX_URI_CHARS: Final = 512
_MAX_URIS_CHARS: Final = 1_536
_MAX_NAME_CHARS: Final = 80
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
# Schemes that programs of a person's own machine take, such as `cursor` or `com.example.app`.
_PRIVATE_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]{1,63}")
# Schemes that a browser itself acts on.
_BROWSERS_OWN: Final = frozenset(
    {"javascript", "data", "vbscript", "file", "blob", "about", "view-source", "ws", "wss", "ftp", "mailto", "tel"}
)
_UNSHOWN: Final = re.compile(r"[^\w .,:()+&@/-]", re.UNICODE)


class Clients:
    """Registers clients and finds them again; a client's identifier is what it registered, sealed."""

    def __init__(self, seals: Seals) -> None:
        self._seals = seals

    def register(self, body: bytes) -> dict[str, JsonValue]:
        """Returns the answer to a registration.

        Raises:
            OAuthError: It cannot be registered so.
        """
        try:
            asked = json.loads(body)
        except (ValueError, RecursionError):
            asked = None
        if not isinstance(asked, dict):
            raise OAuthError("invalid_client_metadata", "The registration must be a JSON object.")
        uris = asked.get("redirect_uris")
        if not isinstance(uris, list) or not 0 < len(uris) <= _MAX_URIS or not all(map(_is_allowed, uris)):
            raise OAuthError(
                "invalid_redirect_uri",
                f"redirect_uris must hold 1 to {_MAX_URIS} addresses: https, http on this machine, or an app's own.",
            )
        if sum(map(len, uris)) > _MAX_URIS_CHARS:
            raise OAuthError("invalid_redirect_uri", "The addresses of redirect_uris are too long together.")
        name = asked.get("client_name")
        shown = _UNSHOWN.sub("", name).strip()[:_MAX_NAME_CHARS] if isinstance(name, str) else ""
        client = Client(shown or "an unnamed client", uris)
        return {
            "client_id": self._seals.seal(client),
            "client_id_issued_at": int(self._seals.now_s()),
            "client_name": client.name,
            "redirect_uris": list(client.redirect_uris),
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            # Whatever was asked for: a secret that anybody can register for proves nothing.
            "token_endpoint_auth_method": "none",
        }

    def find(self, client_id: str) -> Client:
        """Returns a registered client.

        Raises:
            NoClient: There is none of that identifier.
        """
        client = self._seals.open(Client, client_id)
        if client is None:
            raise NoClient("The client is not registered here; let it register again.")
        return client


def client_digest(client_id: str) -> str:
    """Returns what tells a client's codes from another's: its identifier holds all that it registered, and is long."""
    return hashlib.sha256(client_id.encode()).hexdigest()[:32]


def redirects_to(client: Client, uri: str) -> bool:
    """Returns whether a client is answered at an address: one that it registered, on this machine at any port."""
    if not _is_allowed(uri):
        return False  # else a host that browsers read otherwise could hide before the machine's own
    return any(
        uri == known or (_is_near(known) and _portless(uri) == _portless(known)) for known in client.redirect_uris
    )


def is_on_own_machine(uri: str) -> bool:
    """Returns whether what is sent to an address stays on the machine of the browser that sends it."""
    parts = urlsplit(uri)
    return parts.scheme not in ("http", "https") or parts.hostname in _LOOPBACK


def origin_of(uri: str) -> str:
    """Returns what a page must be allowed to send a form to for its answer to reach an address."""
    parts = urlsplit(uri)
    # Policies have no words for an address of version 6.
    named = parts.scheme in ("http", "https") and "[" not in parts.netloc
    return f"{parts.scheme}://{parts.netloc}" if named else f"{parts.scheme}:"


def shown_target(uri: str) -> str:
    """Returns an address as a person is shown it: whose it is, without the rest."""
    parts = urlsplit(uri)
    if parts.hostname in _LOOPBACK:
        return "a program on your own machine"
    return parts.netloc if parts.scheme in ("http", "https") else f"the app for {parts.scheme}: links"


def _is_allowed(uri: object) -> bool:
    if not isinstance(uri, str) or len(uri) > _MAX_URI_CHARS or not re.fullmatch(r"[\x21-\x7e]+", uri):
        return False
    parts = _split(uri)
    if parts is None or parts.fragment or "#" in uri or "@" in parts.netloc or any(char in uri for char in "\"'<>\\;,"):
        return False
    if parts.scheme == "https":
        return bool(parts.hostname)
    if parts.scheme == "http":
        return parts.hostname in _LOOPBACK
    return bool(_PRIVATE_SCHEME.fullmatch(parts.scheme)) and parts.scheme not in _BROWSERS_OWN


def _is_near(uri: str) -> bool:
    parts = _split(uri)
    return parts is not None and parts.scheme == "http" and parts.hostname in _LOOPBACK


def _portless(uri: str) -> tuple[str, str | None, str, str, str] | None:
    parts = _split(uri)
    return (parts.scheme, parts.hostname, parts.path, parts.query, parts.fragment) if parts is not None else None


def _split(uri: str) -> SplitResult | None:
    try:
        parts = urlsplit(uri)
        _ = parts.port  # a port that is none is an error only once it is read
    except ValueError:
        return None
    return parts
