"""Giving roles, taking them away, and showing who has which."""

from dataclasses import dataclass

from pydantic import JsonValue

from loom_common.auth.claims import ALL_NAMESPACES, Role
from loom_common.clock import Clock
from loom_common.conditional_writes import Claims as ConditionalWrites
from loom_common.conditional_writes import claim_name
from loom_common.errors import AuthInsufficient, InvalidArgument, NotFound
from loom_common.page_tokens import decode_page_token, encode_page_token
from loom_gateway.identity.app.ending import TokenEnder
from loom_gateway.identity.app.listing import Page, whole_ms
from loom_gateway.identity.app.namespaces import administers
from loom_gateway.identity.domain.grants import Grant
from loom_gateway.identity.domain.namespaces import named_namespaces
from loom_gateway.identity.domain.principal import Principal
from loom_gateway.identity.domain.subjects import check_subject, every_agent_of
from loom_gateway.identity.store.grants import GrantRepository
from loom_gateway.identity.store.namespaces import NamespaceRepository


@dataclass(frozen=True, slots=True)
class GrantChange:
    """What a call did.

    Attributes:
        grant: The grant as it is now; None where there never was one to remove.
        changed: Whether this call changed it.
        ended_tokens: Tokens that said more than what is left, and were ended.
    """

    grant: Grant | None
    changed: bool
    ended_tokens: int = 0


class GrantDesk:
    """Gives roles and takes them away."""

    def __init__(
        self,
        grants: GrantRepository,
        namespaces: NamespaceRepository,
        ender: TokenEnder,
        writes: ConditionalWrites,
        clock: Clock,
    ) -> None:
        self._grants = grants
        self._namespaces = namespaces
        self._ender = ender
        self._writes = writes
        self._clock = clock

    async def set(
        self, principal: Principal, asked_org: str | None, subject: str, namespace: str, role: Role
    ) -> GrantChange:
        """Gives a subject a role in place of the one that it had.

        Raises:
            AuthInsufficient: The caller does not administer the namespace, or would bound a subject that others gave
                more.
            NotFound: The namespace does not exist, or the caller does not know of it.
            InvalidArgument: The subject is none, or the role stands on `*` alone.
            Conflict: Others change the subject's grants now.
        """
        org = principal.org(asked_org)
        check_subject("subject", subject, every_agent=True)
        if role is Role.ORG_ADMIN and namespace != ALL_NAMESPACES:
            raise InvalidArgument.of("role", "is org_admin on `*` alone")
        await self._require_admin(principal, org, namespace, must_exist=True)
        return await self._write(principal, org, subject, namespace, role)

    async def remove(self, principal: Principal, asked_org: str | None, subject: str, namespace: str) -> GrantChange:
        """Takes a subject's role away; its subject stays bound by its grants, of which there may be none left.

        Raises:
            AuthInsufficient: The caller does not administer the namespace.
            Conflict: Others change the subject's grants now.
        """
        org = principal.org(asked_org)
        await self._require_admin(principal, org, namespace, must_exist=False)
        return await self._write(principal, org, subject, namespace, None)

    async def page(
        self,
        principal: Principal,
        asked_org: str | None,
        *,
        subject: str,
        namespace: str,
        page_size: int,
        page_token: str,
    ) -> Page[Grant]:
        """Returns the grants that the caller may see.

        Raises:
            AuthInsufficient: The organisation is not the caller's.
            InvalidArgument: The page token is not of this listing.
        """
        org = principal.org(asked_org)
        query: dict[str, JsonValue] = {
            "op": "grants.list",
            "org": org,
            "caller": principal.subject,
            "subject": subject,
            "namespace": namespace,
        }
        place = decode_page_token(page_token, query, (str, str))
        shown, hidden = await self._visible(principal, org)
        found = await self._grants.page(
            org,
            after=(str(place[0]), str(place[1])) if place else ("", ""),
            limit=page_size + 1,
            subjects=[subject] if subject else [],
            namespace=namespace,
            shown=shown,
            own=[name for name in (principal.subject, every_agent_of(principal.subject)) if name],
            hidden=hidden,
        )
        if len(found) <= page_size:
            return Page(found, "")
        last = found[page_size - 1]
        return Page(found[:page_size], encode_page_token([last.subject, last.namespace], query))

    async def _write(
        self, principal: Principal, org: str, subject: str, namespace: str, role: Role | None
    ) -> GrantChange:
        async with self._writes.hold(claim_name("grants", org, subject)) as hold:
            held = await self._grants.of(org, [subject])
            before = next((one for one in held if one.namespace == namespace), None)
            live = before if before is not None and not before.removed else None
            if (live.role if live else None) == role:
                # A removal that was cut short is sent again: what it had to end is looked for once more.
                ended = (
                    await self._ender.beyond_grants(org, subject, by=principal.subject) if before and not live else 0
                )
                return GrantChange(live, changed=False, ended_tokens=ended)
            grant = Grant(
                org,
                subject,
                namespace,
                role or (live.role if live else Role.VIEWER),
                whole_ms(self._clock.now()),
                principal.subject,
                removed=role is None,
                version=hold.version_after(before.version if before else 0),
            )
            if not held:
                await self._require_may_bind(principal, grant)
            await self._grants.put(grant)
            await hold.confirm()
        # A first grant ends nothing: it binds the tokens that are made from now on.
        smaller = live is not None and (role is None or role < live.role)
        ended = await self._ender.beyond_grants(org, subject, by=principal.subject) if smaller else 0
        return GrantChange(grant, changed=True, ended_tokens=ended)

    async def _require_admin(self, principal: Principal, org: str, namespace: str, *, must_exist: bool) -> None:
        if namespace == ALL_NAMESPACES:
            if not principal.is_org_admin:
                raise AuthInsufficient("Only a token that administers the organisation grants roles on `*`.")
            return
        space = (await self._namespaces.named(org, [namespace])).get(namespace)
        if space is not None and administers(principal, space):
            return
        # A grant may stand on a namespace that is gone: who administers the organisation may take it away.
        if space is None and principal.is_org_admin and not must_exist:
            return
        if space is None and principal.is_org_admin:
            raise NotFound(
                f"The namespace {namespace!r} does not exist; make it with `namespace.create`, "
                "or `loom namespace create`.",
                detail={"namespace": namespace},
            )
        # The same answer whether or not it exists: what is not the caller's is not told apart.
        raise AuthInsufficient(
            f"Only an administrator of the namespace {namespace!r} grants roles on it.", detail={"namespace": namespace}
        )

    async def _require_may_bind(self, principal: Principal, first: Grant) -> None:
        """Returns if the caller may give a subject its first grant, which bounds the subject everywhere from then on.

        Who administers one namespace must not keep the holders of others, or of the organisation, from making tokens.
        """
        if not principal.is_org_admin and await self._ender.would_bind(first):
            raise AuthInsufficient(
                f"{first.subject!r} holds tokens that its grants do not bound yet; its first grant is an organisation "
                "admin's to give.",
                detail={"reason": "first_grant"},
            )

    async def _visible(self, principal: Principal, org: str) -> tuple[list[str], list[str] | None]:
        """Returns namespaces whose grants the caller sees, and those that it does not though it sees all others."""
        claims = principal.claims
        if claims is None:
            return [], []
        administered = [name for name in named_namespaces(claims) if claims.named_role(name) is Role.ADMIN]
        if not principal.is_org_admin:
            return administered, None
        return administered, await self._namespaces.restricted_names(org)
