"""What a namespace's calls to models may cost in a day, and whether they have.

One cap holds for everything that Loom asks a model for on a namespace's behalf. The spend is read from the ledger, so
it is what providers charged, as far as the rows have come in: calls that run at once may each pass, and what they cost
together is the most by which the cap is exceeded.
"""

from datetime import date, datetime, timedelta
from typing import Final, Protocol

import cachetools
import grpc.aio

from loom.insights.v1 import ledger_pb2, ledger_pb2_grpc
from loom_common.auth.directory import Directory
from loom_common.call import Call, Scope, bind, current
from loom_common.clock import Clock, SystemClock
from loom_common.errors import BackendUnavailable, BudgetExhausted, LoomError

_TIMEOUT_S: Final = 5.0
_RETRY_AFTER_S: Final = 1.0
# Source: chosen. Rows come to the ledger a second after their calls; asking more often tells no more.
_KEPT_S: Final = 2.0
_MAX_KEPT: Final = 4096


class Spend(Protocol):
    """Knows what was spent."""

    async def today_usd(self, scope: Scope, op: str = "") -> float:
        """Returns what a namespace's calls have cost since midnight UTC. Units: US dollars.

        Args:
            scope: The namespace.
            op: Operation that is counted; empty for all.

        Raises:
            LoomError: It cannot be read.
        """
        ...


class GrpcSpend:
    """Asks insights over gRPC; an answer is kept for two seconds."""

    def __init__(self, channel: grpc.aio.Channel, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._stub = ledger_pb2_grpc.LedgerServiceStub(channel)
        self._kept: cachetools.TTLCache[tuple[date, Scope, str], float] = cachetools.TTLCache(
            _MAX_KEPT, _KEPT_S, self._clock.monotonic_s
        )

    async def today_usd(self, scope: Scope, op: str = "") -> float:
        """See `Spend.today_usd`."""
        # What yesterday cost, taken for today's, would send callers away for the whole of it.
        key = self._clock.now().date(), scope, op
        found = self._kept.get(key)
        if found is None:
            request = ledger_pb2.GetSpendTodayRequest(org=scope.org, namespace=scope.namespace, op=op)
            # Under a call of its own: what is read is not the caller's, nor is its time.
            with bind(Call(op="ledger.spend_today", request_id=current().request_id)):
                found = (await self._stub.GetSpendToday(request, timeout=_TIMEOUT_S)).spent_usd
            self._kept[key] = found
        return found


class FakeSpend:
    """Spend that a test sets, by namespace and operation; `error` stands for a ledger that cannot be read."""

    def __init__(self) -> None:
        self.usd: dict[tuple[Scope, str], float] = {}
        self.error: LoomError | None = None

    async def today_usd(self, scope: Scope, op: str = "") -> float:
        """See `Spend.today_usd`."""
        if self.error is not None:
            raise self.error
        return sum(usd for (its, name), usd in self.usd.items() if its == scope and op in ("", name))


class Budget:
    """The daily caps of namespaces.

    Args:
        directory: Knows a namespace's own cap.
        spend: Knows what was spent.
        default_cap_usd: Cap of a namespace without one of its own. Units: US dollars; None for no cap.
        clock: Time.
    """

    def __init__(
        self, directory: Directory, spend: Spend, default_cap_usd: float | None, clock: Clock | None = None
    ) -> None:
        self._directory = directory
        self._spend = spend
        self._default_cap_usd = default_cap_usd
        self._clock = clock or SystemClock()

    async def operation_over_share(self, scope: Scope, share: float = 1.0, op: str = "") -> bool:
        """Returns whether a namespace has spent its cap of today, or an operation its share of it.

        Args:
            scope: The namespace.
            share: Part of the cap that is looked at, 0 to 1.
            op: Operation whose spend is; empty for all.

        Raises:
            BackendUnavailable: The cap or the spend cannot be read: what is not known is not spent.
        """
        try:
            info = await self._directory.namespace_info(scope.org, scope.namespace)
            own = None if info is None else info.daily_cost_cap_usd
            cap_usd = self._default_cap_usd if own is None else own
            return cap_usd is not None and await self._spend.today_usd(scope, op) >= cap_usd * share
        except LoomError as error:
            raise BackendUnavailable(
                "What the namespace spent on models today cannot be read; send the call again.",
                retry_after_s=_RETRY_AFTER_S,
            ) from error

    async def require_within(self, scope: Scope) -> None:
        """Passes where a namespace may spend more today.

        Raises:
            BudgetExhausted: It has spent its cap.
            BackendUnavailable: The cap or the spend cannot be read.
        """
        if await self.operation_over_share(scope):
            raise BudgetExhausted(
                "The namespace has spent what its calls to models may cost in a day (UTC). An administrator may raise "
                "its daily_cost_cap_usd.",
                detail={"namespace": scope.namespace},
                retry_after_s=_left_of_day_s(self._clock.now()),
            )


def _left_of_day_s(now: datetime) -> float:
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    return (midnight - now).total_seconds()
