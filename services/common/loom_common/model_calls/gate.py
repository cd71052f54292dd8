"""The gate that every sender passes first: before caches, before a provider's health, before a byte is sent."""

from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from typing import Final, Protocol, TypeVar

from loom_common import call
from loom_common.attribution import Attribution, Kind
from loom_common.clock import Clock
from loom_common.errors import ModelCallUnattributed
from loom_common.model_calls.held import IDENTITY_WAIT_S, IdentityUnread
from loom_common.model_calls.identity import CallIdentity, call_identity
from loom_common.model_calls.policy import InferencePolicy
from loom_common.model_calls.reads import CachedReads, IdentityReads
from loom_common.model_calls.switch import OrgSwitch

Row = TypeVar("Row")


class Gate(Protocol):
    """Lets calls to models pass, or refuses them."""

    async def require(self) -> None:
        """Passes where the running call may call a model.

        Raises:
            ModelCallUnattributed: Nobody says whom it is for.
            ModelCallsOff: Its organisation switched calls to models off.
            ModelPolicyUnread: That, or whom it is for, could not be read.
        """
        ...


class OpenGate:
    """Lets every call pass: for models in this process, whose calls leave it nowhere."""

    async def require(self) -> None:
        """See `Gate.require`."""


OPEN_GATE: Final = OpenGate()


class ModelCallGate:
    """The gate of a service that calls models over the network.

    Args:
        policy: What calls say of whom they are for.
        switch: Which organisations' calls are off.
        reads: What identity knows; kept for a minute.
        clock: Time.
    """

    def __init__(
        self, policy: InferencePolicy, switch: OrgSwitch, reads: IdentityReads, clock: Clock | None = None
    ) -> None:
        self.policy = policy
        self._switch = switch
        self._reads = CachedReads(reads, clock)

    async def require(self) -> None:
        """See `Gate.require`. The running call carries its headers from here on."""
        running = call.current()
        attribution = running.attribution
        if attribution is None or not (attribution.org or attribution.kind is Kind.SYSTEM):
            raise ModelCallUnattributed(
                "The call does not say whom it is for. Send loom-attribution-bin with it.", detail={"op": running.op}
            )
        self._require_named(attribution)
        if attribution.org:
            await self._switch.require_on(attribution.org)
        running.model_call = await self.identity_of(attribution)

    def off(self) -> frozenset[str]:
        """Returns the organisations that are known to be off, so that jobs leave their rows out of what they select."""
        return self._switch.off()

    async def identity_of(self, attribution: Attribution) -> CallIdentity:
        """Returns the headers of a call that is made for `attribution`.

        Raises:
            IdentityUnread: What they name could not be read.
        """
        try:
            return await call_identity(attribution, self.policy, self._reads)
        except IdentityUnread:
            raise IdentityUnread(retry_after_s=IDENTITY_WAIT_S if attribution.kind is Kind.JOB else None) from None

    async def groups(
        self, rows: Sequence[Row], attribution_of: Callable[[Row], Attribution]
    ) -> AsyncIterator[tuple[Attribution, list[Row]]]:
        """Yields the rows that one call may hold together, in order, with whom that call is for.

        One call is for one customer and one identity. Where calls name nobody, rows of several organisations are one
        call, but for those of an organisation that is switched off: these are a call of their own, which is refused.
        """
        found: dict[Hashable, tuple[Attribution, list[Row]]] = {}
        for row in rows:
            attribution = attribution_of(row)
            key = await self._group(attribution)
            found.setdefault(key, (attribution, []))[1].append(row)
        for group in found.values():
            yield group

    async def _group(self, attribution: Attribution) -> Hashable:
        if not attribution.org or attribution.org in self._switch.off():
            return ("alone", attribution.org)
        if not self.policy.names_anyone:
            return ()
        try:
            # Two identities of two organisations may render alike; their data must not share a call.
            identity = await self.identity_of(attribution)
            return ("named", attribution.org, identity.key)
        except IdentityUnread:
            return ("unread", attribution)

    def _require_named(self, attribution: Attribution) -> None:
        """Refuses a job of an organisation that names neither a namespace nor a writer, where calls name the agent.

        Such is a command without `--namespace`; a gateway would bill it to its default agent.
        """
        nameless = not attribution.namespace and not attribution.subject
        if attribution.kind is Kind.JOB and nameless and self.policy.names_agent:
            raise ModelCallUnattributed(
                "The call names an organisation and no namespace, and calls to models name their agent here. "
                "Name the namespace too.",
                detail={"org": attribution.org},
            )
