"""A workload's own token, exchanged for one of ours."""

from dataclasses import dataclass

import structlog

from loom_common.auth.claims import RESERVED_NAMES, NamespaceGrant
from loom_common.clock import Clock
from loom_common.errors import Conflict, InvalidArgument, Unauthenticated
from loom_common.model_calls.identity import agent_of
from loom_gateway.identity.app.issuer_tokens import IssuerTokens
from loom_gateway.identity.app.minting import IssuedToken, Mint
from loom_gateway.identity.app.namespaces import NamespaceDesk
from loom_gateway.identity.app.rights import RightsReader
from loom_gateway.identity.domain.delegation import TokenWish
from loom_gateway.identity.domain.grants import MAX_GRANTS, granted
from loom_gateway.identity.domain.namespaces import Namespace, Traits
from loom_gateway.identity.domain.principal import Principal
from loom_gateway.identity.domain.subjects import every_agent_of
from loom_gateway.identity.domain.trusts import Trust, TrustRefused, agent_of_token, home_names
from loom_gateway.identity.store.namespaces import NamespaceRepository
from loom_gateway.identity.store.trusts import TrustRepository

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Exchanged:
    """An agent's token, and the namespace that is its own."""

    issued: IssuedToken
    namespace: str


class TokenExchange:
    """Takes workloads' tokens and gives agents' tokens."""

    def __init__(
        self,
        trusts: TrustRepository,
        tokens: IssuerTokens,
        namespaces: NamespaceRepository,
        desk: NamespaceDesk,
        rights: RightsReader,
        mint: Mint,
        clock: Clock,
    ) -> None:
        self._trusts = trusts
        self._tokens = tokens
        self._namespaces = namespaces
        self._desk = desk
        self._rights = rights
        self._mint = mint
        self._clock = clock

    async def exchange(self, org: str, trust_name: str, token: str, ttl_s: int | None) -> Exchanged:
        """Returns the token of the agent that a workload's token stands for.

        Raises:
            Unauthenticated: There is no such trust, or it does not take the token; which of the two is not told.
            AuthInsufficient: The agent is disabled.
            BackendUnavailable: The issuer's keys cannot be read now.
            Conflict: The agent's namespace is being made.
        """
        trust = await self._trusts.find(org, trust_name) if org not in RESERVED_NAMES else None
        try:
            if trust is None or trust.removed:
                raise TrustRefused("there is no such trust")
            subject = agent_of_token(trust, await self._tokens.verified(trust, token))
        except TrustRefused as refusal:
            raise _refused(org, trust_name, str(refusal)) from None
        rights = await self._rights.of(org, subject)
        home = await self._home(trust, subject)
        # The home leads: it is the namespace of calls that name none.
        others = [grant for grant in granted(rights, MAX_GRANTS - 1) if grant.namespace != home]
        wish = TokenWish(
            namespaces=[NamespaceGrant(home, trust.role), *others],
            ttl_s=min(ttl_s or trust.token_ttl_s, trust.token_ttl_s),
            subject=subject,
            org_admin=rights.org_admin,
        )
        # Ending every agent of the trust ends it, and so does removing the trust.
        vouching = every_agent_of(subject)
        issued = await self._mint.listed(Principal(None, vouching=vouching), org, wish, f"exchanged under {trust.name}")
        # Once more: one that was removed or replaced since the first look ended its tokens before this one was made.
        again = await self._trusts.find(org, trust_name)
        if again is None or again.removed or again.version != trust.version:
            await self._mint.end(issued.record, by=vouching)
            raise _refused(org, trust_name, "the trust was removed or replaced meanwhile")
        return Exchanged(issued, home)

    async def _home(self, trust: Trust, subject: str) -> str:
        """Returns the agent's own namespace, made at its first exchange."""
        named = agent_of(subject)
        assert named is not None, "agent_of_token returns an agent"
        owned = await self._namespaces.owned_by(trust.org, subject, 1)
        if owned:
            return owned[0].name
        for name in home_names(trust.name, named[1]):
            try:
                space, _ = await self._desk.make(
                    Namespace(
                        trust.org,
                        name,
                        "memory",
                        subject,
                        restricted=False,
                        created_at=self._clock.now(),
                        created_by=subject,
                        traits=Traits(shared=False),
                    )
                )
            except InvalidArgument:
                continue
            if space.owner == subject:
                return space.name
        raise Conflict("The namespace that would be the agent's own belongs to another; rename that or the trust.")


def _refused(org: str, trust: str, why: str) -> Unauthenticated:
    """Logs why a token is not taken, and returns what its sender is told, which is always the same."""
    _log.warning("token_exchange_refused", org=org, trust=trust, why=why)
    return Unauthenticated(
        "The token is not one that this trust takes. Its issuer, audience, times and claims have to be those that the "
        "trust states; the gateway's log says which are not."
    )
