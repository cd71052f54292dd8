"""Which organisations switched their calls to models off: kept in memory, read from the database, and turned."""

from collections.abc import Callable, Iterable
from typing import Final

import structlog

from loom_common.clock import Clock
from loom_common.conditional_writes import Claims as ConditionalWrites
from loom_common.conditional_writes import claim_name
from loom_gateway.identity.app.listing import administered_org, whole_ms
from loom_gateway.identity.domain.model_calls import ModelCalls
from loom_gateway.identity.domain.principal import Principal
from loom_gateway.identity.store.model_calls import ModelCallsRepository

DEFAULT_REFRESH_S: Final = 2.0

_log = structlog.get_logger(__name__)


class SwitchBoard:
    """What this process knows of the switches.

    What is turned here is known here at once; what another replica turned, after the next reading.
    """

    def __init__(self, switches: ModelCallsRepository, clock: Clock, refresh_s: float = DEFAULT_REFRESH_S) -> None:
        self._switches = switches
        self._clock = clock
        self._refresh_s = refresh_s
        self._known: dict[str, ModelCalls] = {}
        self._read_at_s: float | None = None
        self.off: frozenset[str] = frozenset()
        """Organisations whose calls are off."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when `off` has become another."""

    def age_s(self) -> float | None:
        """Returns how long ago all switches were read; None where they never were. Units: seconds."""
        return None if self._read_at_s is None else self._clock.monotonic_s() - self._read_at_s

    def due(self) -> bool:
        """Returns whether it is time to read."""
        age_s = self.age_s()
        return age_s is None or age_s >= self._refresh_s

    async def read(self) -> None:
        """Reads all switches.

        Raises:
            LoomError: The database did not answer.
        """
        asked_at_s = self._clock.monotonic_s()
        self.learn(await self._switches.all())
        self._read_at_s = asked_at_s

    def learn(self, switches: Iterable[ModelCalls]) -> None:
        """Takes switches; an older version of one that is known changes nothing, whichever came first."""
        for switch in switches:
            if switch.version > self._known.get(switch.org, ModelCalls(switch.org)).version:
                self._known[switch.org] = switch
        off = frozenset(org for org, switch in self._known.items() if not switch.enabled)
        if off != self.off:
            self.off = off
            self.on_change()


class ModelCallsDesk:
    """Turns and shows switches."""

    def __init__(
        self, switches: ModelCallsRepository, board: SwitchBoard, writes: ConditionalWrites, clock: Clock
    ) -> None:
        self._switches = switches
        self._board = board
        self._writes = writes
        self._clock = clock

    async def switch(self, principal: Principal, asked_org: str | None, *, enabled: bool) -> tuple[ModelCalls, bool]:
        """Turns an organisation's switch; returns it, and whether this call turned it.

        Raises:
            AuthInsufficient: The caller does not administer the organisation.
            InvalidArgument: The organisation's name breaks the rule, or the operator named none.
            Conflict: Others turn it now.
        """
        org = administered_org(principal, asked_org)
        # Two at once would both write, and the later version would win whichever was answered last.
        async with self._writes.hold(claim_name("org_model_calls", org)) as hold:
            found = await self._switches.of(org)
            if found.enabled == enabled:
                self._board.learn([found])
                return found, False
            turned = ModelCalls(
                org,
                enabled,
                whole_ms(self._clock.now()),
                principal.subject,
                hold.version_after(found.version),
            )
            await self._switches.put(turned)
            await hold.confirm()
        self._board.learn([turned])
        _log.warning("model_calls_switched", org=org, enabled=enabled)
        return turned, True

    async def show(self, principal: Principal, asked_org: str | None) -> ModelCalls:
        """Returns an organisation's switch.

        Raises:
            AuthInsufficient: The caller does not administer the organisation.
            InvalidArgument: The operator named none.
        """
        return await self._switches.of(administered_org(principal, asked_org))
