"""Making and listing namespaces."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from pydantic import JsonValue

from loom_common.auth.claims import Claims, Role
from loom_common.clock import Clock
from loom_common.conditional_writes import Claims as ConditionalWrites
from loom_common.conditional_writes import claim_name
from loom_common.errors import AuthInsufficient, Conflict, NotFound
from loom_common.page_tokens import decode_page_token, encode_page_token
from loom_gateway.identity.app.listing import whole_ms
from loom_gateway.identity.domain.delegation import role_in
from loom_gateway.identity.domain.names import check_new_name
from loom_gateway.identity.domain.namespaces import (
    Namespace,
    NamespaceChange,
    Traits,
    is_readable,
    leading,
    named_namespaces,
)
from loom_gateway.identity.domain.principal import Principal
from loom_gateway.identity.store.namespaces import NamespaceRepository

# A subject with more personal namespaces than this has its home among the oldest of them.
_MAX_OWNED = 64


@dataclass(frozen=True, slots=True)
class NamespacePage:
    """One page of namespaces, in the order in which searches read them."""

    namespaces: Sequence[Namespace]
    next_page_token: str


class GrantBounds(Protocol):
    """Ends tokens that say more than their subject holds."""

    async def beyond_grants(self, org: str, subject: str, *, by: str) -> int:
        """Ends those of a subject; returns how many."""
        ...

    async def beyond_grants_on(self, org: str, namespace: str, *, by: str) -> int:
        """Ends those of every subject with a token that names a namespace; returns how many."""
        ...


class NamespaceDesk:
    """Makes and lists namespaces."""

    def __init__(
        self, namespaces: NamespaceRepository, writes: ConditionalWrites, clock: Clock, bounds: GrantBounds
    ) -> None:
        self._namespaces = namespaces
        self._writes = writes
        self._clock = clock
        self._bounds = bounds
        self.on_change: Callable[[Namespace], None] = lambda _space: None
        """Called when a namespace has become another here."""

    async def create(
        self,
        principal: Principal,
        asked_org: str | None,
        name: str,
        *,
        kind: str,
        owner: str,
        restricted: bool,
        traits: Traits | None = None,
    ) -> tuple[Namespace, bool]:
        """Makes a namespace; returns it, and whether it was made now.

        Raises:
            AuthInsufficient: The caller does not administer the organisation.
            InvalidArgument: The name breaks the rule or is reserved.
            Conflict: It exists with another kind, or others are making it now.
        """
        org = principal.org(asked_org)
        if not principal.is_org_admin:
            raise AuthInsufficient("Only a token that administers the organisation can make a namespace.")
        return await self.make(
            Namespace(org, name, kind, owner, restricted, self._now(), principal.subject, None, traits or Traits()),
            asker=principal,
        )

    async def make(self, space: Namespace, *, asker: Principal | None = None) -> tuple[Namespace, bool]:
        """Makes a namespace; returns it, and whether it was made now.

        Args:
            space: The namespace.
            asker: Who is shown the one that exists; None for identity itself.

        Raises:
            InvalidArgument: The name breaks the rule or is reserved.
            Conflict: It exists with another kind or is not the asker's to see, or others are making it now.
        """
        org, name = space.org, space.name
        check_new_name("org", org)
        check_new_name("name", name)
        if found := await self._existing(space, asker):
            return found, False
        # Two calls at once would both make it, and the kind of the later one would win in silence.
        async with self._writes.hold(claim_name("namespace", org, name)) as hold:
            if found := await self._existing(space, asker):
                return found, False
            now = self._now()
            made = NamespaceChange().of(replace(space, created_at=now, updated_at=now))
            await self._namespaces.put(made, version=hold.version_after(await self._namespaces.version(org, name)))
            await hold.confirm()
            return made, True

    async def update(
        self, principal: Principal, asked_org: str | None, name: str, change: NamespaceChange
    ) -> tuple[Namespace, bool]:
        """Changes a namespace; returns it, and whether this call changed it.

        Raises:
            AuthInsufficient: The caller reads it and does not administer it, or gives it to another owner without
                administering the organisation.
            NotFound: It does not exist, or the caller does not read it.
            Conflict: Others are changing it now.
        """
        org = principal.org(asked_org)
        await self._changeable(principal, org, name, change)  # before anything is written for who may change nothing
        async with self._writes.hold(claim_name("namespace", org, name)) as hold:
            found = await self._changeable(principal, org, name, change)
            changed = change.of(found)
            if changed == found:
                return found, False
            changed = replace(changed, updated_at=self._now())
            await self._namespaces.put(changed, version=hold.version_after(await self._namespaces.version(org, name)))
            await hold.confirm()
        self.on_change(changed)
        await self._after(found, changed, by=principal.subject)
        return changed, True

    async def _after(self, before: Namespace, now: Namespace, *, by: str) -> None:
        """Ends what is held no more: by an owner that was, and on what only explicit grants reach from now on."""
        if before.owner and before.owner != now.owner:
            await self._bounds.beyond_grants(now.org, before.owner, by=by)
        if now.restricted and not before.restricted:
            await self._bounds.beyond_grants_on(now.org, now.name, by=by)

    async def page(
        self, principal: Principal, asked_org: str | None, *, page_size: int, page_token: str
    ) -> NamespacePage:
        """Returns namespaces that the caller reads: its home, those that its token names, the rest by name.

        Raises:
            AuthInsufficient: The organisation is not the caller's.
            InvalidArgument: The page token is not of this listing.
        """
        org = principal.org(asked_org)
        query: dict[str, JsonValue] = {
            "op": "namespace.list",
            "org": org,
            "caller": principal.claims.jti if principal.claims else "",
        }
        # A place is a name and whether it is one of the leading ones, which are not in the order of their names.
        place = decode_page_token(page_token, query, (bool, str))
        first = await self._leading(principal.claims) if principal.claims else []
        names = [space.name for space in first]
        shown: list[Namespace] = []
        after = ""
        if place is None or place[0]:
            begin = names.index(place[1]) + 1 if place and place[1] in names else 0
            shown = first[begin : begin + page_size + 1]
        else:
            after = str(place[1])
        if len(shown) <= page_size and self._reads_all(principal.claims):
            shown += await self._namespaces.page(
                org,
                after=after,
                leading=names,
                limit=page_size + 1 - len(shown),
                restricted_too=principal.is_operator,
            )
        if len(shown) <= page_size:
            return NamespacePage(shown, "")
        last = shown[page_size - 1]
        return NamespacePage(shown[:page_size], encode_page_token([last.name in names, last.name], query))

    async def readable(self, claims: Claims, kinds: Sequence[str], limit: int) -> list[Namespace]:
        """Returns the namespaces that a search of this token reads, at most `limit`, in the order of `page`.

        Args:
            claims: The token.
            kinds: Keeps these kinds; empty keeps all.
            limit: Most namespaces to return.
        """
        first = await self._leading(claims)
        found = [space for space in first if not kinds or space.kind in kinds][:limit]
        if len(found) < limit and self._reads_all(claims):
            names = [space.name for space in first]
            found += await self._namespaces.page(claims.org, leading=names, kinds=kinds, limit=limit - len(found))
        return found

    async def _existing(self, space: Namespace, asker: Principal | None) -> Namespace | None:
        name, kind = space.name, space.kind
        found = (await self._namespaces.named(space.org, [name])).get(name)
        if found is not None and asker is not None and not _sees(asker, found):
            raise Conflict(f"The name {name!r} is taken; take another.", detail={"namespace": name})
        if found is not None and found.kind != kind:
            raise Conflict(
                f"The namespace {name!r} exists and holds {found.kind!r}, not {kind!r}; take another name.",
                detail={"namespace": name, "kind": found.kind},
            )
        return found

    async def _changeable(self, principal: Principal, org: str, name: str, change: NamespaceChange) -> Namespace:
        """Returns the namespace of that name, where the caller may change it so."""
        found = (await self._namespaces.named(org, [name])).get(name)
        if found is None or not (principal.is_operator or is_readable(principal.known_claims, found)):
            raise NotFound(f"There is no namespace {name!r} that you may use.", detail={"namespace": name})
        if not administers(principal, found):
            raise AuthInsufficient(f"Only an administrator of the namespace {name!r} changes it.")
        given_up = not change.owner and found.owner == principal.subject
        # An owner's calls that name no namespace go to the oldest one that it owns: who could make another the owner
        # of a namespace could have it write there.
        if change.owner not in (None, found.owner) and not (principal.is_org_admin or given_up):
            raise AuthInsufficient("Only a token that administers the organisation gives a namespace to another owner.")
        return found

    async def _leading(self, claims: Claims) -> list[Namespace]:
        known = list((await self._namespaces.named(claims.org, named_namespaces(claims))).values())
        if self._reads_all(claims):
            # For any other token the home is among the named ones.
            known += await self._namespaces.owned_by(claims.org, claims.sub, _MAX_OWNED)
        return leading(claims, known)

    def _now(self) -> datetime:
        return whole_ms(self._clock.now())

    @staticmethod
    def _reads_all(claims: Claims | None) -> bool:
        return claims is None or claims.wide_role is not None


def _sees(principal: Principal, space: Namespace) -> bool:
    """Returns whether a caller may be told of a namespace: it reads it, or made it and sends the call again."""
    if principal.claims is None or space.created_by == principal.subject:
        return True
    return is_readable(principal.claims, space)


def administers(principal: Principal, space: Namespace) -> bool:
    """Returns whether a caller administers a namespace: on a restricted one only by a token that names it."""
    if principal.claims is None:
        return True
    role = role_in(principal.claims, space.name, restricted=space.restricted)
    return (principal.claims.org_admin and not space.restricted) or role is Role.ADMIN
