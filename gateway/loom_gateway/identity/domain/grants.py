"""Grants, and what they let the tokens of their subject say."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from loom_common.auth.claims import ALL_NAMESPACES, NamespaceGrant, Role

MAX_GRANTS: Final = 64
"""Most grants that a token carries. Source: what services read of one."""


@dataclass(frozen=True, slots=True)
class Grant:
    """One subject's role on one namespace, or on `*`.

    Attributes:
        org: Organisation.
        subject: Who holds it.
        namespace: Name of the namespace, or `*` for every unrestricted one.
        role: The role; `ORG_ADMIN` stands on `*` alone.
        updated_at: When it was last set or removed, UTC.
        updated_by: Subject that did.
        removed: Whether it was taken away; it then says only that its subject is bound by its grants.
        version: Rises with each change.
    """

    org: str
    subject: str
    namespace: str
    role: Role
    updated_at: datetime
    updated_by: str
    removed: bool = False
    version: int = 0


@dataclass(frozen=True, slots=True)
class Rights:
    """What a subject holds at a moment.

    Attributes:
        named: Role on each namespace that a grant names, or that the subject owns.
        wide: Role on every unrestricted namespace; None for none.
        org_admin: Whether it administers the organisation.
        bound: Whether its tokens may say no more than this. A subject that never had a grant is not: whoever made its
            token decided.
        disabled: Whether it may not come in at all.
    """

    named: Mapping[str, Role] = field(default_factory=dict)
    wide: Role | None = None
    org_admin: bool = False
    bound: bool = False
    disabled: bool = False

    def role_on(self, namespace: str, *, restricted: bool) -> Role | None:
        """Returns the role on a namespace; on a restricted one only what names it counts."""
        if namespace == ALL_NAMESPACES:
            return self.wide
        roles = [self.named.get(namespace), None if restricted else self.wide]
        return max((role for role in roles if role is not None), default=None)


def rights_of(grants: Iterable[Grant], owned: Iterable[str] = (), *, disabled: bool = False) -> Rights:
    """Returns what a subject holds.

    Args:
        grants: Its grants, removed ones included, and those of every agent of its trust.
        owned: Namespaces that it owns: an owner needs no grant.
        disabled: Whether it may not come in.
    """
    held = list(grants)
    live = [grant for grant in held if not grant.removed]
    named = dict.fromkeys(owned, Role.ADMIN)
    wide: Role | None = None
    for grant in live:
        role = min(grant.role, Role.ADMIN)
        if grant.namespace == ALL_NAMESPACES:
            wide = max(role, wide or role)
        else:
            named[grant.namespace] = max(role, named.get(grant.namespace, role))
    org_admin = any(grant.role is Role.ORG_ADMIN for grant in live)
    return Rights(named, wide, org_admin, bound=bool(held), disabled=disabled)


def excess(
    rights: Rights, grants: Sequence[NamespaceGrant], *, org_admin: bool, restricted: Collection[str]
) -> str | None:
    """Returns the first thing that a token would say beyond its subject's rights, or None where it says no more.

    Args:
        rights: What the subject holds.
        grants: What the token says.
        org_admin: Whether it administers the organisation.
        restricted: Names, among them, of restricted namespaces.
    """
    if rights.disabled:
        return "anything: it is disabled"
    if not rights.bound:
        return None
    if org_admin and not rights.org_admin:
        return "org_admin"
    for grant in grants:
        held = rights.role_on(grant.namespace, restricted=grant.namespace in restricted)
        if held is None or held < grant.role:
            return f"{grant.role.label} on {grant.namespace!r}"
    return None


def granted(rights: Rights, most: int = MAX_GRANTS) -> list[NamespaceGrant]:
    """Returns the rights as a token says them: the named ones by name, then `*`.

    Args:
        rights: What the subject holds.
        most: Most grants to return; where there are more, named ones are left out and never `*`, which covers most.
    """
    wide = [NamespaceGrant(ALL_NAMESPACES, rights.wide)] if rights.wide else []
    named = [NamespaceGrant(name, rights.named[name]) for name in sorted(rights.named)]
    return [*named[: most - len(wide)], *wide]
