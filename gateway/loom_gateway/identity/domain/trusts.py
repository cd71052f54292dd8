"""Trusts in other issuers: which of their tokens stand for which agent."""

import hashlib
import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import urlsplit

from loom_common.auth.claims import Role
from loom_common.errors import InvalidArgument
from loom_gateway.identity.domain.names import NAME_PATTERN
from loom_gateway.identity.domain.subjects import EVERY_AGENT, agent_subject, subject_kind

_UNFIT: Final = re.compile(r"[^A-Za-z0-9._@-]+")
_DIGEST_CHARS: Final = 12
_MAX_VALUES: Final = 64


# What lies outside of it, and 6to4 within it, may carry an IPv4 address that a gateway takes out again.
# Source: RFC 4291, 2.4; RFC 6052; RFC 3056.
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")


class TrustRefused(Exception):
    """A workload's token is not one that a trust takes. The text is for the log: callers are not told why."""


@dataclass(frozen=True, slots=True)
class Trust:
    """Which tokens of an issuer stand for agents of an organisation, and what these get.

    Attributes:
        org: The organisation.
        name: Name, unique in the organisation.
        issuer: `iss` of the tokens.
        audience: What their `aud` must name.
        jwks_url: Address of the issuer's keys; empty where `jwks` holds them.
        jwks: The issuer's keys; empty where `jwks_url` names their address.
        required_claims: Values of each claim, one of which a token must have; one that ends in `*` is a prefix.
        agent_claim: Claim that names the agent.
        role: Role of an agent on its own namespace.
        token_ttl_s: Units: seconds that an agent's token lives at most.
        by_operator: Whether the operator set it, who may name addresses inside the network.
        updated_at: When it was last set, UTC.
        updated_by: Subject that did.
        removed: Whether it was taken away.
        version: Rises with each change.
    """

    org: str
    name: str
    issuer: str
    audience: str
    jwks_url: str
    jwks: str
    required_claims: Mapping[str, Sequence[str]]
    agent_claim: str
    role: Role
    token_ttl_s: int
    by_operator: bool
    updated_at: datetime
    updated_by: str
    removed: bool = False
    version: int = 0


def agent_of_token(trust: Trust, payload: Mapping[str, object]) -> str:
    """Returns the subject of the agent that a verified token stands for.

    Args:
        trust: The trust.
        payload: What the token says; its signature, issuer, audience and times are good.

    Raises:
        TrustRefused: A claim that the trust requires is missing or has another value, or none names an agent.
    """
    for name, wanted in trust.required_claims.items():
        if not any(_takes(pattern, value) for pattern in wanted for value in _values(payload, name)):
            raise TrustRefused(f"the claim {name!r} is missing or has another value")
    named = _values(payload, trust.agent_claim)
    subject = agent_subject(trust.name, named[0]) if len(named) == 1 else ""
    # An agent of that name would hold whatever is granted to all of them.
    if subject_kind(subject) is None or named[0] == EVERY_AGENT:
        raise TrustRefused(f"the claim {trust.agent_claim!r} names no agent")
    return subject


def home_names(trust: str, agent: str) -> list[str]:
    """Returns names for an agent's own namespace, the best first; the last belongs to no other agent."""
    plain = f"{trust}:{agent}"
    slug = _UNFIT.sub("-", agent).strip("-")[: 100 - len(trust)]
    digest = hashlib.sha256(agent.encode()).hexdigest()[:_DIGEST_CHARS]
    safe = f"{trust}:{slug}-{digest}" if slug else f"{trust}:{digest}"
    return [plain, safe] if NAME_PATTERN.fullmatch(plain) else [safe]


def check_jwks_url(url: str, *, by_operator: bool) -> None:
    """Returns if keys may be read from an address: `https`, or for the operator `http` on loopback.

    An address that an organisation's admin names is looked up again at each reading: it may lead nowhere inside.

    Raises:
        InvalidArgument: They may not.
    """
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname or "", parts.port
    except ValueError:
        raise InvalidArgument.of("jwks_url", "is no address") from None
    if not host or parts.username or parts.password or parts.fragment or not url.isascii():
        raise InvalidArgument.of("jwks_url", "is no address of the form https://host/path")
    if parts.scheme == "https":
        if not by_operator and not _may_be_public(host):
            raise InvalidArgument.of("jwks_url", "leads inside the network; only the operator may name such an address")
        return
    if parts.scheme == "http" and by_operator and is_loopback(host):
        return
    raise InvalidArgument.of("jwks_url", "is not `https`; the operator may name `http` on loopback")


def is_loopback(host: str) -> bool:
    """Returns whether a host's name stands for this machine itself."""
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def is_public(address: str) -> bool:
    """Returns whether an IP address leads to the public network, and nowhere inside."""
    parsed = _address(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        parsed = parsed.ipv4_mapped or parsed
    if isinstance(parsed, ipaddress.IPv6Address) and (parsed not in _GLOBAL_UNICAST or parsed.sixtofour):
        return False
    return parsed is not None and parsed.is_global and not parsed.is_multicast


def _may_be_public(host: str) -> bool:
    if _address(host) is not None:
        return is_public(host)
    return "." in host.rstrip(".") and not host.endswith((".localhost", ".local", ".internal"))


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None


def _takes(pattern: str, value: str) -> bool:
    return value.startswith(pattern[:-1]) if pattern.endswith("*") else value == pattern


def _values(payload: Mapping[str, object], name: str) -> list[str]:
    """Returns a claim's values as texts; a list has several, and what is neither text, number nor flag has none."""
    found: object = payload.get(name)
    if name.startswith("/"):
        found = payload
        for step in name[1:].split("/"):
            key = step.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, Mapping) else None
    items = found[:_MAX_VALUES] if isinstance(found, list) else [found]
    return [text for text in map(_text, items) if text is not None]


def _text(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return value if isinstance(value, str) and value else None
