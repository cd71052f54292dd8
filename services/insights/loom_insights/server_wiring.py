"""Builds the boundary of a ClickHouse server, and what writes its access entities."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

import structlog

from loom_common.analysis import allowlist
from loom_common.clickhouse import ClickHouse
from loom_common.clickhouse.errors import StatementFailed
from loom_common.clickhouse.http import ServerAddress
from loom_common.errors import Conflict, LoomError
from loom_common.leases import Leases
from loom_common.resealing import SealedKind
from loom_common.sealing import Sealer
from loom_insights.app.provisioning import Provisioning, ProvisioningRefused
from loom_insights.domain.boundary import AnalysisBoundary, NoBoundary
from loom_insights.settings import InsightsSettings
from loom_insights.store.analysis_secrets import PURPOSE, AnalysisSecretRepository, SecretsLost
from loom_insights.store.server_access import ServerAccess
from loom_insights.store.server_analyst import ServerAnalyst
from loom_insights.store.server_boundary import ServerBoundary, ServerState, is_newer

LEASE: Final = "analysis.entities"
_LEASE_S: Final = 60.0
_LEASE_WAIT_S: Final = 120.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ServerParts:
    """The boundary, and what only a server has: what writes its entities, and its sealed key."""

    boundary: AnalysisBoundary
    provisioning: Provisioning | None = None
    sealed: SealedKind | None = None


async def open_server_boundary(
    settings: InsightsSettings, ch: ClickHouse, address: ServerAddress, stack: AsyncExitStack
) -> ServerParts:
    """Returns the boundary of the server behind `ch`, after it has written what the server lacks, where it may."""
    if settings.jwt_secret is None:
        return ServerParts(NoBoundary("server", "insights has no LOOM_JWT_SECRET to open the analysis key with"))
    sealer = Sealer(settings.jwt_secret, settings.jwt_secret_previous, purpose=PURPOSE)
    secrets = AnalysisSecretRepository(ch, sealer)
    access = ServerAccess(ch)
    provisioning = provisioning_of(settings, ch, access, secrets)
    await _provision(provisioning)
    analyst = ServerAnalyst(address, connections=settings.analysis_concurrent)
    await stack.enter_async_context(analyst)

    async def state() -> ServerState:
        held = await secrets.read()
        if held is None:
            raise SecretsLost("no analysis key is stored; run `loom ch-setup`")
        entities, _ = await provisioning.entities()
        return ServerState(entities.prefix, held, entities.tables, is_newer(await access.stamp()))

    boundary = ServerBoundary(analyst, state, settings.analysis_limits())
    return ServerParts(boundary, provisioning, SealedKind("analysis_secrets", secrets, sealer, writing_alone(ch)))


def provisioning_of(
    settings: InsightsSettings, ch: ClickHouse, access: ServerAccess, secrets: AnalysisSecretRepository
) -> Provisioning:
    """Returns what writes the entities of the server behind `ch`, one writer at a time."""
    limits, tables = settings.analysis_limits(), allowlist().values()
    return Provisioning(access, secrets, writing_alone(ch), tables, limits, settings.analysis_concurrent)


def writing_alone(ch: ClickHouse) -> Callable[[], AbstractAsyncContextManager[None]]:
    """Returns what takes the lease of every writer of entities and of the key."""
    leases = Leases(ch, "insights")

    @asynccontextmanager
    async def alone() -> AsyncIterator[None]:
        async with leases.taken(LEASE, _LEASE_S, wait_s=_LEASE_WAIT_S, renewed=True) as lease:
            if lease is None:
                raise Conflict("Another process writes the access entities of analyses.")
            yield

    return alone


async def _provision(provisioning: Provisioning) -> None:
    """Writes what is missing; where that cannot be, the checks of the boundary find what it lacks."""
    try:
        done = await provisioning.write()
    except (ProvisioningRefused, SecretsLost) as error:
        _log.error("analysis_entities_refused", finding=str(error))
    except LoomError as error:
        cause = error.__cause__
        _log.warning("analysis_entities_unwritten", cause=str(cause) if isinstance(cause, StatementFailed) else "")
    else:
        if done.absent:
            _log.info("analysis_columns_absent", absent=list(done.absent))
