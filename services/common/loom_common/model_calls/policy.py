"""What an operator wants calls to models to say of whom they are for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from loom_common.model_calls.headers import HeaderTemplate, encoded
from loom_common.model_calls.refusals import DEFAULT_REFUSALS, RefusalTable

ORG_PLACEHOLDER: Final = "{org}"
DEFAULT_SYSTEM_CUSTOMER: Final = "_system"
DEFAULT_COOLDOWN_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class InferencePolicy:
    """Headers, the hosts that may learn them, and what those hosts' refusals mean."""

    customer_header: str = ""
    """Header that names the organisation; empty for none."""
    feature_header: str = ""
    """Header that names what the call serves; empty for none."""
    customer_format: str = ORG_PLACEHOLDER
    """The gateway's name of an organisation, around `{org}`."""
    feature_names: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The gateway's names of features, by Loom's."""
    system_customer: str = DEFAULT_SYSTEM_CUSTOMER
    """Customer of the deployment's own calls."""
    identity_headers: tuple[HeaderTemplate, ...] = ()
    """Headers that name more of whom a call is for."""
    gateway_hosts: frozenset[str] = frozenset()
    """Hosts that may learn it, in lower case, with a port where only that one is meant."""
    tenant_claim: str = ""
    """Claim of a trust whose one required value is the tenant of its agents."""
    refusals: RefusalTable = DEFAULT_REFUSALS
    """Answers that are about the identity."""
    cooldown_s: float = DEFAULT_COOLDOWN_S
    """How long jobs ask nothing for an identity that was refused."""

    @property
    def placeholders(self) -> frozenset[str]:
        """What the identity headers name."""
        return frozenset(name for template in self.identity_headers for name in template.placeholders)

    @property
    def names_agent(self) -> bool:
        """Whether the identity headers name the agent or its tenant."""
        return any(template.names_agent for template in self.identity_headers)

    @property
    def names_anyone(self) -> bool:
        """Whether a call says at all whom it is for."""
        return bool(self.customer_header or self.identity_headers)

    def customer(self, org: str) -> str:
        """Returns the value of the customer header for an organisation."""
        return encoded(self.customer_format.replace(ORG_PLACEHOLDER, org))

    def feature(self, feature: str) -> str:
        """Returns the value of the feature header."""
        return encoded(self.feature_names.get(feature, feature))

    def is_gateway(self, host: str, port: int | None) -> bool:
        """Returns whether a host may learn whom a call is for."""
        host = host.lower()
        shown = f"[{host}]" if ":" in host else host
        return bool({host, shown, f"{shown}:{port}"} & self.gateway_hosts)
