"""Headers that name whom a call to a model is for, as the operator words them."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

PLACEHOLDERS: Final = ("org", "namespace", "subject", "agent", "tenant", "email", "user_id")
"""What a template may name."""

_AGENT: Final = frozenset({"agent", "tenant"})
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")  # a token of RFC 9110
_LITERAL: Final = re.compile(r"[\x20-\x7e]*")
_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")

# Headers that carry the request itself; a template over one of them would break it or leak into it.
_TAKEN: Final = frozenset(
    {
        "accept",
        "accept-encoding",
        "anthropic-version",
        "api-key",
        "authorization",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "cookie",
        "host",
        "transfer-encoding",
        "user-agent",
        "x-api-key",
        "x-goog-api-key",
    }
)


@dataclass(frozen=True, slots=True)
class HeaderTemplate:
    """One header: its name, and text around placeholders."""

    name: str
    parts: tuple[str, ...]
    """Text and placeholders in turn, text first."""

    @property
    def placeholders(self) -> tuple[str, ...]:
        """What it names."""
        return self.parts[1::2]

    @property
    def names_agent(self) -> bool:
        """Whether it goes only together with all others that name an agent or its tenant."""
        return not _AGENT.isdisjoint(self.placeholders)

    def rendered(self, values: Mapping[str, str]) -> str:
        """Returns the header's value; empty where it says nothing."""
        return "".join(
            encoded(values.get(part, "")) if place % 2 else part for place, part in enumerate(self.parts)
        ).strip()


def encoded(value: str) -> str:
    """Returns a value as a header can carry it: as it is, but for a space, `%` and all that is not printable ASCII."""
    return "".join(
        char if "\x21" <= char <= "\x7e" and char != "%" else "".join(f"%{byte:02X}" for byte in _bytes(char))
        for char in value
    )


def rendered(templates: Sequence[HeaderTemplate], values: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Returns the headers that say something; those that name an agent go together or not at all.

    Half an agent's name would be refused by a gateway, or be billed to another one.
    """
    whole = all(values.get(name) for one in templates if one.names_agent for name in one.placeholders)
    found = ((one.name, one.rendered(values)) for one in templates if whole or not one.names_agent)
    return tuple((name, value) for name, value in found if value)


def header_name(name: str) -> str:
    """Returns a header's name.

    Raises:
        ValueError: It is none, or one that requests to providers carry for themselves.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a header")
    if name.lower() in _TAKEN:
        raise ValueError(f"{name!r} is a header of the request itself")
    return name


def parse_template(name: str, text: str) -> HeaderTemplate:
    """Returns the header that a template stands for.

    Raises:
        ValueError: The name is no header's, the text names what is not known, or no header can carry it.
    """
    parts = _PLACEHOLDER.split(text)
    for literal in parts[::2]:
        if not _LITERAL.fullmatch(literal) or "{" in literal or "}" in literal:
            raise ValueError(f"the template of {name!r} holds what a header cannot carry")
    for placeholder in parts[1::2]:
        if placeholder not in PLACEHOLDERS:
            known = ", ".join(f"{{{one}}}" for one in PLACEHOLDERS)
            raise ValueError(f"the template of {name!r} names {{{placeholder}}}; it may name {known}")
    return HeaderTemplate(header_name(name), tuple(parts))


def parse_identity_headers(text: str) -> tuple[HeaderTemplate, ...]:
    """Returns the headers of a JSON object of names and templates; of empty text none.

    Raises:
        ValueError: It is not such an object.
    """
    held = _object(text)
    templates = []
    for name, template in held.items():
        if not isinstance(template, str) or not template:
            raise ValueError(f"the template of {name!r} is not text")
        templates.append(parse_template(name, template))
    if len({template.name.lower() for template in templates}) != len(templates):
        raise ValueError("two headers have the same name")
    return tuple(templates)


def parse_names(text: str) -> dict[str, str]:
    """Returns a JSON object of names, such as Loom's and a gateway's; of empty text an empty one.

    Raises:
        ValueError: It is not such an object.
    """
    held = _object(text)
    for name, other in held.items():
        if not isinstance(other, str) or not other:
            raise ValueError(f"what {name!r} stands for is not text")
    return {name: str(other) for name, other in held.items()}


def _object(text: str) -> dict[str, object]:
    if not text:
        return {}
    try:
        held = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    if not isinstance(held, dict):
        raise ValueError("it is not a JSON object")
    return held


def _bytes(char: str) -> bytes:
    return char.encode("utf-8", "surrogatepass")
