"""Making and listing namespaces."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pydantic import JsonValue

from loom_common.auth.claims import Claims
from loom_common.clock import Clock
from loom_common.conditional_writes import Claims as ConditionalWrites
from loom_common.conditional_writes import claim_name
from loom_common.errors import AuthInsufficient, Conflict
from loom_common.page_tokens import decode_page_token, encode_page_token
from loom_gateway.identity.domain.names import check_new_name
from loom_gateway.identity.domain.namespaces import Namespace, leading, named_namespaces
from loom_gateway.identity.domain.principal import Principal
from loom_gateway.identity.store.namespaces import NamespaceRepository

# A subject with more personal namespaces than this has its home among the oldest of them.
_MAX_OWNED = 64


@dataclass(frozen=True, slots=True)
class NamespacePage:
    """One page of namespaces, in the order in which searches read them."""

    namespaces: Sequence[Namespace]
    next_page_token: str


class NamespaceDesk:
    """Makes and lists namespaces."""

    def __init__(self, namespaces: NamespaceRepository, writes: ConditionalWrites, clock: Clock) -> None:
        self._namespaces = namespaces
        self._writes = writes
        self._clock = clock

    async def create(
        self, principal: Principal, asked_org: str | None, name: str, *, kind: str, owner: str, restricted: bool
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
        check_new_name("org", org)
        check_new_name("name", name)
        if found := await self._existing(org, name, kind):
            return found, False
        # Two calls at once would both make it, and the kind of the later one would win in silence.
        async with self._writes.hold(claim_name("namespace", org, name)) as hold:
            if found := await self._existing(org, name, kind):
                return found, False
            made = Namespace(org, name, kind, owner, restricted, _whole_ms(self._clock.now()))
            version = hold.version_after(await self._namespaces.version(org, name))
            await self._namespaces.add(made, created_by=principal.subject, version=version)
            await hold.confirm()
            return made, True

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

    async def _existing(self, org: str, name: str, kind: str) -> Namespace | None:
        found = (await self._namespaces.named(org, [name])).get(name)
        if found is not None and found.kind != kind:
            raise Conflict(
                f"The namespace {name!r} exists and holds {found.kind!r}, not {kind!r}; take another name.",
                detail={"namespace": name, "kind": found.kind},
            )
        return found

    async def _leading(self, claims: Claims) -> list[Namespace]:
        known = list((await self._namespaces.named(claims.org, named_namespaces(claims))).values())
        if self._reads_all(claims):
            # For any other token the home is among the named ones.
            known += await self._namespaces.owned_by(claims.org, claims.sub, _MAX_OWNED)
        return leading(claims, known)

    @staticmethod
    def _reads_all(claims: Claims | None) -> bool:
        return claims is None or claims.wide_role is not None


def _whole_ms(moment: datetime) -> datetime:
    """Returns the moment as it is stored, so that the first answer and every later one say the same."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
