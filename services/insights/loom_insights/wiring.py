"""Builds insights and hands its parts to each other."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from loom.insights.v1 import ledger_pb2_grpc
from loom_common.clickhouse import ClickHouse
from loom_common.clock import SystemClock
from loom_common.erasure import erasure_service
from loom_common.errors import LoomError
from loom_common.migrations import migrate
from loom_common.peers import open_peers
from loom_common.server import RunningServer, Service, ServiceSpec, serving
from loom_common.status import Problem, StatusReport
from loom_insights.analysis_wiring import Analysis, open_analysis
from loom_insights.api.ledger import LedgerServicer
from loom_insights.app.memory_grpc import GrpcMemoryFacts
from loom_insights.app.usage import UsageAccounts
from loom_insights.reads_wiring import read_services
from loom_insights.settings import InsightsSettings
from loom_insights.store.agent_events import AgentEventRepository
from loom_insights.store.census import CENSUS

NAME = "insights"


class StoreStatus:
    """Insights fares as its store does, and says whether analyses run."""

    def __init__(self, ch: ClickHouse, analysis: Analysis) -> None:
        self._ch = ch
        self._analysis = analysis

    async def report(self) -> StatusReport:
        """See `StatusSource.report`."""
        try:
            await self._ch.ping()
        except LoomError as error:
            return StatusReport(ready=False, problems=(Problem("clickhouse_unreachable", str(error), "error"),))
        return StatusReport(ready=True, problems=self._analysis.problems(), facts=self._analysis.facts())


@asynccontextmanager
async def open_service(settings: InsightsSettings, ch: ClickHouse) -> AsyncIterator[RunningServer]:
    """Serves insights over `ch` until it is left.

    Raises:
        SettingsError: A key file cannot be used.
        ListenError: The address is taken.
    """
    await migrate(ch, NAME, "loom_insights")
    clock = SystemClock()
    accounts = UsageAccounts(AgentEventRepository(ch), clock)
    async with (
        open_peers(settings, NAME) as peers,
        open_analysis(settings, ch, peers.directory) as analysis,
    ):
        memory = GrpcMemoryFacts(peers.channel(settings.memory_addr))
        spec = ServiceSpec(
            NAME,
            settings.insights_listen,
            (
                Service(
                    ledger_pb2_grpc.add_LedgerServiceServicer_to_server,
                    LedgerServicer(accounts),
                    "loom.insights.v1.LedgerService",
                ),
                *read_services(ch, memory, peers.directory, accounts, clock),
                *analysis.services,
                erasure_service(ch, CENSUS),
            ),
            StoreStatus(ch, analysis),
        )
        async with serving(spec, settings, peers.deps) as server:
            yield server
