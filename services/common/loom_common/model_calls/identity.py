"""What the placeholders of identity headers stand for, of one call."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from loom_common.attribution import Attribution, Kind
from loom_common.model_calls.headers import rendered
from loom_common.model_calls.policy import InferencePolicy
from loom_common.model_calls.reads import IdentityReads

_AGENT_PREFIX: Final = "sa:"
_NEEDS_SUBJECT: Final = frozenset({"subject", "agent", "tenant", "email", "user_id"})


@dataclass(frozen=True, slots=True)
class CallIdentity:
    """The headers of one call to a model, rendered."""

    kind: Kind
    """What made the call."""
    customer: tuple[tuple[str, str], ...] = ()
    """Headers that every request to a model carries: customer and feature."""
    identity: tuple[tuple[str, str], ...] = ()
    """Headers that only a gateway gets."""
    billed: str = ""
    """Value of the customer header."""

    @property
    def key(self) -> tuple[str, ...]:
        """Whom it is for, as a gateway tells one from another: the customer is part of it, the feature is not."""
        return (self.billed, *(part for header in self.identity for part in header))


async def call_identity(attribution: Attribution, policy: InferencePolicy, reads: IdentityReads) -> CallIdentity:
    """Returns the headers of a call.

    Raises:
        LoomError: What they name could not be read.
    """
    system = attribution.kind is Kind.SYSTEM
    billed, customer = "", []
    if policy.customer_header:
        # A job such as a recalibration may be the system's and yet hold an organisation's data: the data decides.
        billed = policy.customer(attribution.org) if attribution.org else policy.system_customer
        customer.append((policy.customer_header, billed))
    if policy.feature_header and attribution.feature:
        customer.append((policy.feature_header, policy.feature(attribution.feature)))
    identity: tuple[tuple[str, str], ...] = ()
    if policy.identity_headers and not system:
        identity = rendered(policy.identity_headers, await _values(attribution, policy, reads))
    return CallIdentity(attribution.kind, tuple(customer), identity, billed)


def agent_of(subject: str) -> tuple[str, str] | None:
    """Returns trust and agent of `sa:<trust>:<agent>`, or None for any other subject."""
    if not subject.startswith(_AGENT_PREFIX):
        return None
    trust, _, agent = subject.removeprefix(_AGENT_PREFIX).partition(":")
    return (trust, agent) if trust and agent else None


def is_person(subject: str) -> bool:
    """Returns whether a subject is a person's, which is an address."""
    return "@" in subject.strip("@") and ":" not in subject.partition("@")[0]


async def _values(attribution: Attribution, policy: InferencePolicy, reads: IdentityReads) -> Mapping[str, str]:
    wanted = policy.placeholders
    subject = attribution.subject
    if not subject and attribution.kind is Kind.JOB and attribution.namespace and wanted & _NEEDS_SUBJECT:
        owner = await reads.namespace_owner(attribution.org, attribution.namespace)
        # Only an agent's own namespace says whose work it holds; a person may own one that others write to.
        subject = owner if agent_of(owner) else ""
    values = {
        "org": attribution.org,
        "namespace": attribution.namespace,
        "subject": subject,
        "user_id": attribution.user_id or subject,
    }
    agent = agent_of(subject)
    if agent is not None:
        values["agent"] = agent[1]
        if "tenant" in wanted:
            claims = await reads.trust_claims(attribution.org, agent[0])
            values["tenant"] = _one_exact(claims.get(policy.tenant_claim, ()))
    elif is_person(subject) and "email" in wanted:
        values["email"] = await reads.account_email(attribution.org, subject) or subject
    return values


def _one_exact(values: object) -> str:
    """Returns the one value that a claim must have; empty where there are several, or a prefix."""
    if not isinstance(values, list | tuple) or len(values) != 1:
        return ""
    value = str(values[0])
    return "" if value.endswith("*") else value
