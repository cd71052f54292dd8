"""Namespaces, which of them a token reads, and in which order."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from loom_common.auth.claims import ALL_NAMESPACES, Claims
from loom_gateway.identity.domain.delegation import role_in


@dataclass(frozen=True, slots=True)
class Namespace:
    """One namespace.

    Attributes:
        org: Organisation that holds it.
        name: Name, unique in the organisation.
        kind: What it holds: `memory`, `code` or `tracker`.
        owner: Subject that owns it; empty where it is shared.
        restricted: Whether only tokens that name it may use it.
        created_at: When it was made, UTC.
    """

    org: str
    name: str
    kind: str
    owner: str
    restricted: bool
    created_at: datetime


def is_readable(claims: Claims, namespace: Namespace) -> bool:
    """Returns whether a token reads a namespace at all."""
    return namespace.org == claims.org and role_in(claims, namespace.name, restricted=namespace.restricted) is not None


def named_namespaces(claims: Claims) -> list[str]:
    """Returns the namespaces that a token names, in its order."""
    return list(dict.fromkeys(grant.namespace for grant in claims.namespaces if grant.namespace != ALL_NAMESPACES))


def leading(claims: Claims, known: Iterable[Namespace]) -> list[Namespace]:
    """Returns the namespaces that a search reads first: the home, then those that the token names, in its order.

    The home is the oldest namespace that the subject owns and the token reads; where there is none, the first named
    one leads anyway. Owning a namespace does not make it readable: a token stays as narrow as it was made.

    Args:
        claims: The token.
        known: The namespaces that the token names and those that its subject owns; others are passed over.
    """
    readable = {space.name: space for space in known if is_readable(claims, space)}
    owned = sorted(
        (space for space in readable.values() if space.owner == claims.sub),
        key=lambda space: (space.created_at, space.name),
    )
    named = [readable[name] for name in named_namespaces(claims) if name in readable]
    return list(dict.fromkeys([*owned[:1], *named]))
