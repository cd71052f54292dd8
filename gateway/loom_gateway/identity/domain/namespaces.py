"""Namespaces, which of them a token reads, and in which order."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from loom_common.auth.claims import ALL_NAMESPACES, Claims
from loom_common.write_policy import ANYTHING, WritePolicy
from loom_gateway.identity.domain.delegation import role_in


@dataclass(frozen=True, slots=True)
class Namespace:
    """One namespace.

    Attributes:
        org: Organisation that holds it.
        name: Name, unique in the organisation.
        kind: What it holds: `memory`, `code` or `tracker`.
        owner: Subject that owns it; empty where nobody does.
        restricted: Whether only tokens that name it may use it.
        created_at: When it was made, UTC.
        created_by: Subject that made it.
        updated_at: When it was last changed, UTC.
        traits: What the organisation says of it beside that.
    """

    org: str
    name: str
    kind: str
    owner: str
    restricted: bool
    created_at: datetime
    created_by: str = ""
    updated_at: datetime | None = None
    traits: "Traits" = field(default_factory=lambda: Traits())


@dataclass(frozen=True, slots=True)
class Traits:
    """What an organisation says of a namespace, for services to follow.

    Attributes:
        shared: Whether others than its owner are meant to write to it.
        classification: How sensitive its contents are, in the organisation's own word.
        traffic_class: Class of its calls to models.
        rerank_endpoint: Name of the endpoint that reranks its hits; empty for none.
        classifier_endpoint: Name of the endpoint that labels what is written to it; empty for none.
        llm_cache: Whether models' answers over it may be kept; None where the deployment's settings say.
        daily_cost_cap_usd: Units: US dollars a day; None where the deployment's cap holds.
        write_policy: What may be written to it.
    """

    shared: bool = True
    classification: str = ""
    traffic_class: str = ""
    rerank_endpoint: str = ""
    classifier_endpoint: str = ""
    llm_cache: bool | None = None
    daily_cost_cap_usd: float | None = None
    write_policy: WritePolicy = ANYTHING


@dataclass(frozen=True, slots=True)
class NamespaceChange:
    """What a namespace is to become; None leaves a part as it is.

    Attributes:
        owner: Subject that owns it; empty for none.
        restricted: Whether only tokens that name it may use it.
        traits: Changed traits by their name.
    """

    owner: str | None = None
    restricted: bool | None = None
    traits: Mapping[str, str | bool | float | WritePolicy | None] = field(default_factory=dict)

    def of(self, space: Namespace) -> Namespace:
        """Returns the namespace as it is to become; one without an owner is shared."""
        owner = space.owner if self.owner is None else self.owner
        restricted = space.restricted if self.restricted is None else self.restricted
        # Names and types are those of the contract's fields, which the servicer maps one by one.
        traits = replace(space.traits, **self.traits)  # type: ignore[arg-type]
        if not owner and not traits.shared:
            traits = replace(traits, shared=True)
        return replace(space, owner=owner, restricted=restricted, traits=traits)


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
