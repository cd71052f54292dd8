"""Builds insights and hands its parts to each other."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from loom.insights.v1 import ledger_pb2_grpc, usage_pb2_grpc
from loom_common.clickhouse import ClickHouse
from loom_common.clock import SystemClock
from loom_common.erasure import erasure_service
from loom_common.errors import LoomError
from loom_common.migrations import migrate
from loom_common.peers import open_peers
from loom_common.server import RunningServer, Service, ServiceSpec, serving
from loom_common.status import Problem, StatusReport
from loom_insights.api.ledger import LedgerServicer
from loom_insights.api.usage import UsageServicer
from loom_insights.app.usage import UsageAccounts
from loom_insights.settings import InsightsSettings
from loom_insights.store.agent_events import AgentEventRepository
from loom_insights.store.census import CENSUS

NAME = "insights"


class StoreStatus:
    """Insights fares as its store does."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch

    async def report(self) -> StatusReport:
        """See `StatusSource.report`."""
        try:
            await self._ch.ping()
        except LoomError as error:
            return StatusReport(ready=False, problems=(Problem("clickhouse_unreachable", str(error), "error"),))
        return StatusReport(ready=True)


@asynccontextmanager
async def open_service(settings: InsightsSettings, ch: ClickHouse) -> AsyncIterator[RunningServer]:
    """Serves insights over `ch` until it is left.

    Raises:
        SettingsError: A key file cannot be used.
        ListenError: The address is taken.
    """
    await migrate(ch, NAME, "loom_insights")
    accounts = UsageAccounts(AgentEventRepository(ch), SystemClock())
    async with open_peers(settings, NAME) as peers:
        spec = ServiceSpec(
            NAME,
            settings.insights_listen,
            (
                Service(
                    ledger_pb2_grpc.add_LedgerServiceServicer_to_server,
                    LedgerServicer(accounts),
                    "loom.insights.v1.LedgerService",
                ),
                Service(
                    usage_pb2_grpc.add_UsageServiceServicer_to_server,
                    UsageServicer(accounts),
                    "loom.insights.v1.UsageService",
                ),
                erasure_service(ch, CENSUS),
            ),
            StoreStatus(ch),
        )
        async with serving(spec, settings, peers.deps) as server:
            yield server
