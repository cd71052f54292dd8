"""The directory inside the gateway's own process: what services ask over gRPC, answered from the tables."""

from collections.abc import Mapping, Sequence
from typing import Final

import cachetools

from loom_common.auth.claims import RESERVED_NAMES, Claims
from loom_common.auth.directory import NamespaceInfo
from loom_common.call import current
from loom_common.clock import Clock
from loom_common.errors import Unauthenticated
from loom_common.times import format_time
from loom_common.write_policy import WritePolicy
from loom_gateway.identity.app.namespaces import NamespaceDesk
from loom_gateway.identity.domain.delegation import role_in
from loom_gateway.identity.domain.namespaces import Namespace
from loom_gateway.identity.domain.principal import Principal
from loom_gateway.identity.store.accounts import AccountRepository
from loom_gateway.identity.store.namespaces import NamespaceRepository
from loom_gateway.identity.store.trusts import TrustRepository

# Each call through the gateway may ask, and the answer changes about never. Source: chosen, below the five seconds
# that services keep theirs.
_KEPT_S: Final = 2.0
_MAX_KEPT: Final = 4096


class LocalDirectory:
    """Knows namespaces, without a call. A namespace that is missing is looked for again each time."""

    def __init__(
        self,
        namespaces: NamespaceRepository,
        desk: NamespaceDesk,
        trusts: TrustRepository,
        accounts: AccountRepository,
        clock: Clock,
    ) -> None:
        self._namespaces = namespaces
        self._desk = desk
        self._trusts = trusts
        self._accounts = accounts
        self._kept: cachetools.TTLCache[tuple[str, str], NamespaceInfo] = cachetools.TTLCache(
            _MAX_KEPT, _KEPT_S, clock.monotonic_s
        )
        desk.on_change = self._forget

    def _forget(self, space: Namespace) -> None:
        self._kept.pop((space.org, space.name), None)

    async def namespace_info(self, org: str, namespace: str) -> NamespaceInfo | None:
        """See `Directory.namespace_info`."""
        if {org, namespace} & RESERVED_NAMES:
            return None
        kept = self._kept.get((org, namespace))
        if kept is not None:
            return kept
        found = (await self._namespaces.named(org, [namespace])).get(namespace)
        if found is None:
            return None
        info = self._kept[org, namespace] = namespace_info(found)
        return info

    async def caller_namespaces(self, kinds: Sequence[str] = (), limit: int = 64) -> list[NamespaceInfo]:
        """See `Directory.caller_namespaces`."""
        claims = current().claims
        if claims is None:
            raise Unauthenticated("The call carries no caller's token, so it has no namespaces.")
        return [namespace_info(space, claims) for space in await self._desk.readable(claims, kinds, limit)]

    async def trust_claims(self, org: str, trust: str) -> Mapping[str, Sequence[str]]:
        """See `Directory.trust_claims`."""
        found = await self._trusts.find(org, trust)
        return {} if found is None or found.removed else found.required_claims

    async def account_email(self, org: str, subject: str) -> str:
        """See `Directory.account_email`."""
        found = await self._accounts.find(org, subject)
        return "" if found is None else found.email


def namespace_info(space: Namespace, reader: Claims | Principal | None = None) -> NamespaceInfo:
    """Returns a namespace as services see it, with the reader's role on it where there is a reader."""
    claims = reader.claims if isinstance(reader, Principal) else reader
    if isinstance(reader, Principal) and reader.is_operator:
        role = "admin"
    else:
        held = role_in(claims, space.name, restricted=space.restricted) if claims else None
        role = held.label if held else ""
    return NamespaceInfo(
        org=space.org,
        name=space.name,
        kind=space.kind,
        owner=space.owner,
        restricted=space.restricted,
        created_at=format_time(space.created_at),
        role=role,
        shared=space.traits.shared,
        classification=space.traits.classification,
        traffic_class=space.traits.traffic_class,
        rerank_endpoint=space.traits.rerank_endpoint,
        classifier_endpoint=space.traits.classifier_endpoint,
        llm_cache=space.traits.llm_cache,
        daily_cost_cap_usd=space.traits.daily_cost_cap_usd,
        updated_at=format_time(space.updated_at or space.created_at),
        # A list of words that may not be written tells them; services read it, and who administers the namespace.
        write_policy=space.traits.write_policy if reader is None or role == "admin" else WritePolicy(),
    )
