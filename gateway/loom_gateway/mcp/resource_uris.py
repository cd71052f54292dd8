"""Addresses of resources: `loom://<kind>/<namespace>/<name>`, every part percent-encoded."""

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode

SCHEME: Final = "loom"

_PREFIX: Final = f"{SCHEME}://"
# A document's name of 1,024 characters of four bytes, its namespace and a section of it, each byte encoded, fit.
_MAX_CHARS: Final = 65_536


@dataclass(frozen=True, slots=True)
class ResourceUri:
    """One address, taken apart."""

    kind: str
    namespace: str
    name: str
    """The resource's own name, such as a memory's key; it may hold any character."""
    facts: dict[str, str] = field(default_factory=dict)
    """What else tells it from others of its name."""

    def __str__(self) -> str:
        query = urlencode({name: value for name, value in self.facts.items() if value}, quote_via=quote)
        path = "/".join(quote(part, safe="") for part in (self.kind, self.namespace, self.name))
        return f"{_PREFIX}{path}{'?' + query if query else ''}"


def parse_uri(text: str) -> ResourceUri | None:
    """Returns an address taken apart, or None for one that is none of ours.

    A name whose slashes were not encoded is read as it was meant.
    """
    if not text.startswith(_PREFIX) or len(text) > _MAX_CHARS:
        return None
    path, _, query = text.removeprefix(_PREFIX).partition("?")
    parts = path.split("/", 2)
    if len(parts) != 3 or not all(parts):
        return None
    try:
        kind, namespace, name = (unquote(part, errors="strict") for part in parts)
        facts = dict(parse_qsl(query, errors="strict", max_num_fields=8)) if query else {}
    except ValueError:
        return None
    return ResourceUri(kind, namespace, name, facts)
