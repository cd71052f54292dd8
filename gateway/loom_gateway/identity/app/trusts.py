"""Setting, showing and removing trusts in other issuers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import JsonValue

from loom_common.auth.claims import Role
from loom_common.clock import Clock
from loom_common.conditional_writes import Claims as ConditionalWrites
from loom_common.conditional_writes import claim_name
from loom_common.errors import AuthInsufficient, InvalidArgument
from loom_common.page_tokens import decode_page_token
from loom_gateway.identity.app.ending import TokenEnder
from loom_gateway.identity.app.jwks import KeysUnusable, parse_issuer_keys
from loom_gateway.identity.app.listing import Page, administered_org, cut, whole_ms
from loom_gateway.identity.domain.principal import Principal
from loom_gateway.identity.domain.subjects import EVERY_AGENT, agent_subject, check_trust_name
from loom_gateway.identity.domain.trusts import Trust, check_jwks_url
from loom_gateway.identity.store.trusts import TrustRepository


@dataclass(frozen=True, slots=True)
class TrustWish:
    """What a trust is to be; see `Trust`."""

    name: str
    issuer: str
    audience: str
    jwks_url: str
    jwks: str
    required_claims: Mapping[str, Sequence[str]]
    agent_claim: str
    role: Role
    token_ttl_s: int


class TrustDesk:
    """Sets, shows and removes trusts."""

    def __init__(self, trusts: TrustRepository, ender: TokenEnder, writes: ConditionalWrites, clock: Clock) -> None:
        self._trusts = trusts
        self._ender = ender
        self._writes = writes
        self._clock = clock

    async def set(self, principal: Principal, asked_org: str | None, wish: TrustWish) -> tuple[Trust, bool]:
        """Sets a trust in place of the one of its name; returns it, and whether there was none.

        The tokens of the agents of the one before end: what it took, this one may not take.

        Raises:
            AuthInsufficient: The caller does not administer the organisation, or the operator set the one of its name.
            InvalidArgument: The wish names no keys, keys that cannot be used, or an address that may not be read.
            Conflict: Others are changing it now.
        """
        org = administered_org(principal, asked_org)
        check_trust_name("name", wish.name)
        if bool(wish.jwks_url) == bool(wish.jwks):
            raise InvalidArgument.of("jwks_url", "and `jwks`: exactly one of them is given")
        if wish.jwks_url:
            check_jwks_url(wish.jwks_url, by_operator=principal.is_operator)
        else:
            try:
                parse_issuer_keys(wish.jwks)
            except KeysUnusable:
                raise InvalidArgument.of("jwks", "is no JSON Web Key Set with a public signing key") from None
        async with self._writes.hold(claim_name("trust", org, wish.name)) as hold:
            before = await self._trusts.find(org, wish.name)
            # Its agents' names hold grants and namespaces: other keys under its name would hold all of them.
            if before is not None and before.by_operator and not principal.is_operator:
                raise AuthInsufficient("The operator set the trust of that name, and alone replaces it.")
            trust = Trust(
                org=org,
                name=wish.name,
                issuer=wish.issuer,
                audience=wish.audience,
                jwks_url=wish.jwks_url,
                jwks=wish.jwks,
                required_claims=wish.required_claims,
                agent_claim=wish.agent_claim,
                role=wish.role,
                token_ttl_s=wish.token_ttl_s,
                by_operator=principal.is_operator,
                updated_at=whole_ms(self._clock.now()),
                updated_by=principal.subject,
                version=hold.version_after(before.version if before else 0),
            )
            await self._trusts.put(trust)
            await hold.confirm()
        is_new = before is None or before.removed
        if not is_new:
            # Also where it says the same: a call whose answer was lost may have stored it and ended nothing.
            await self._ender.all_of(org, agent_subject(wish.name, EVERY_AGENT), by=principal.subject)
        return trust, is_new

    async def remove(self, principal: Principal, asked_org: str | None, name: str) -> bool:
        """Removes a trust and ends its agents' tokens; returns whether there was one.

        Raises:
            AuthInsufficient: The caller does not administer the organisation.
            Conflict: Others are changing it now.
        """
        org = administered_org(principal, asked_org)
        async with self._writes.hold(claim_name("trust", org, name)) as hold:
            found = await self._trusts.find(org, name)
            if found is None:
                return False
            if not found.removed:
                await self._trusts.put(
                    replace(
                        found,
                        removed=True,
                        updated_at=whole_ms(self._clock.now()),
                        updated_by=principal.subject,
                        version=hold.version_after(found.version),
                    )
                )
                await hold.confirm()
        # Each time, not only at the change: a call whose answer was lost may have stored it and ended nothing.
        await self._ender.all_of(org, agent_subject(name, EVERY_AGENT), by=principal.subject)
        return not found.removed

    async def page(
        self, principal: Principal, asked_org: str | None, *, page_size: int, page_token: str
    ) -> Page[Trust]:
        """Returns trusts by name.

        Raises:
            AuthInsufficient: The caller does not administer the organisation.
            InvalidArgument: The page token is not of this listing.
        """
        org = administered_org(principal, asked_org)
        query: dict[str, JsonValue] = {"op": "org.list_trusts", "org": org}
        place = decode_page_token(page_token, query, (str,))
        found = await self._trusts.page(org, after=str(place[0]) if place else "", limit=page_size + 1)
        return cut(found, page_size, query, lambda trust: trust.name)
