"""Builds what `insights.query` stands on: the boundary that fits the engine, the checks of it, and the operation."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from loom.insights.v1 import analysis_pb2_grpc, insights_pb2_grpc
from loom_common.auth.directory import Directory
from loom_common.clickhouse import ClickHouse
from loom_common.clickhouse.analyst import Analyst
from loom_common.clock import SystemClock
from loom_common.ops import all_ops
from loom_common.resealing import Reseal
from loom_common.server import Service
from loom_common.status import Problem
from loom_insights.api.analysis import AnalysisAdminServicer
from loom_insights.api.insights import InsightsServicer
from loom_insights.app.analysis import Analyses
from loom_insights.app.availability import Availability
from loom_insights.app.catalog import Catalog
from loom_insights.app.namespaces import ReadableNamespaces
from loom_insights.domain.boundary import AnalysisBoundary, NoBoundary
from loom_insights.server_wiring import ServerParts, open_server_boundary
from loom_insights.settings import InsightsSettings
from loom_insights.store.embedded_boundary import EmbeddedBoundary


@runtime_checkable
class HasAnalyst(Protocol):
    """An engine inside this process, which can run statements as its analyst."""

    def analyst(self, places: int) -> Analyst | None:
        """Returns a new analyst, or None where the engine has none for this database."""
        ...


@dataclass(frozen=True, slots=True)
class Analysis:
    """What a service serves of analyses, and what it says of them."""

    services: tuple[Service, ...]
    boundary: AnalysisBoundary
    availability: Availability

    def facts(self) -> dict[str, str]:
        """Returns which boundary is in force and whether it holds, for health."""
        return {
            "analysis.boundary": self.boundary.kind,
            "analysis.state": "available" if self.availability.holds else "unavailable",
        }

    def problems(self) -> tuple[Problem, ...]:
        """Returns what an operator should know of it."""
        return self.availability.problems()


@asynccontextmanager
async def open_analysis(settings: InsightsSettings, ch: ClickHouse, directory: Directory) -> AsyncIterator[Analysis]:
    """Opens the boundary, checks it in the background, and closes it at the end.

    The boundary is the engine's: one inside this process has the embedded one, a server its own. Where the one that
    fits cannot be had, analyses answer nothing; none stands in for the other.
    """
    async with AsyncExitStack() as stack:
        parts = await _parts(settings, ch, stack)
        async with _served(settings, parts, directory) as analysis:
            yield analysis


@asynccontextmanager
async def _served(settings: InsightsSettings, parts: ServerParts, directory: Directory) -> AsyncIterator[Analysis]:
    boundary = parts.boundary
    availability = Availability(boundary, settings.analysis_probe_interval_s, SystemClock())
    analyses = Analyses(
        boundary,
        availability,
        ReadableNamespaces(all_ops()["insights.query"], directory),
        per_org=settings.analysis_concurrent_per_org,
        together=settings.analysis_concurrent,
    )
    catalog = Catalog(settings.analysis_limits(), settings.analysis_concurrent_per_org, settings.analysis_concurrent)
    reseal = Reseal(*(() if parts.sealed is None else (parts.sealed,)))
    checks = asyncio.create_task(availability.keep_checking(), name="analysis-checks")
    try:
        yield Analysis(
            (
                Service(
                    insights_pb2_grpc.add_InsightsServiceServicer_to_server,
                    InsightsServicer(analyses, catalog),
                    "loom.insights.v1.InsightsService",
                ),
                Service(
                    analysis_pb2_grpc.add_AnalysisAdminServiceServicer_to_server,
                    AnalysisAdminServicer(boundary.kind, availability, parts.provisioning, reseal),
                    "loom.insights.v1.AnalysisAdminService",
                ),
            ),
            boundary,
            availability,
        )
    finally:
        checks.cancel()
        with suppress(asyncio.CancelledError):
            await checks
        await boundary.close()


async def _parts(settings: InsightsSettings, ch: ClickHouse, stack: AsyncExitStack) -> ServerParts:
    if isinstance(ch, HasAnalyst):
        analyst = ch.analyst(settings.analysis_concurrent)
        if analyst is None:
            return ServerParts(NoBoundary("embedded", "the engine was opened for analyses of another database"))
        return ServerParts(EmbeddedBoundary(analyst, settings.analysis_limits()))
    # Loaded here: a process on the engine inside it needs no HTTP client.
    from loom_common.clickhouse.endpoint_analyst import EndpointAnalyst
    from loom_common.clickhouse.http import HttpClickHouse

    if not isinstance(ch, HttpClickHouse):
        return ServerParts(NoBoundary("server", "nothing is known of the database behind it"))
    found = await EndpointAnalyst.find(ch.address, connections=settings.analysis_concurrent)
    if found is not None:
        return ServerParts(EmbeddedBoundary(found, settings.analysis_limits()))
    return await open_server_boundary(settings, ch, ch.address, stack)
