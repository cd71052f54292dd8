"""Builds the embedding service: the model, the use cases, the server."""

from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

import structlog

from loom.embedding.v1 import calibration_pb2_grpc
from loom.embedding.v1 import embedding_pb2_grpc as pb_grpc
from loom_common.clickhouse import ClickHouse
from loom_common.clock import Clock, SystemClock
from loom_common.erasure import erasure_service
from loom_common.leases import Leases
from loom_common.migrations import migrate
from loom_common.peers import open_peers
from loom_common.server import RunningServer, Service, ServiceSpec, serving
from loom_common.status import WorkerStatus
from loom_common.workers import Workers
from loom_embedding.api.calibration import CalibrationServicer
from loom_embedding.api.embedding import EmbeddingServicer, Served
from loom_embedding.app.calibration import Calibrations
from loom_embedding.app.calibration_status import CalibrationStatus
from loom_embedding.app.namespace_calibration import NamespaceCalibrations
from loom_embedding.app.probe import Probe
from loom_embedding.app.queries import QueryCache, QueryEmbedding
from loom_embedding.app.shared_cache import NoSharedVectors, SharedCache, SharedVectors
from loom_embedding.app.status import EmbeddingStatus
from loom_embedding.app.texts import TextEmbedding
from loom_embedding.app.width import probe_width
from loom_embedding.domain.embedder import FAKE, LOCAL, Embedder, ServedModel
from loom_embedding.model import OpenModel, open_model
from loom_embedding.settings import EmbeddingSettings
from loom_embedding.store.calibrations import CalibrationRepository
from loom_embedding.store.census import CENSUS
from loom_embedding.store.vectors import VectorRepository
from loom_embedding.workers.calibration import CalibrationKeeper
from loom_embedding.workers.recalibration import Recalibration

NAME = "embedding"
PACKAGE = "loom_embedding"
FULL_NAME = "loom.embedding.v1.EmbeddingService"
CALIBRATION_NAME = "loom.embedding.v1.CalibrationService"

# Source: chosen. A query of this length is a paragraph; longer ones are hardly asked twice.
_SHARED_MAX_CHARS = 2_000
# The model whose cosines the settings' own thresholds were tuned for.
_TUNED_FOR = "text-embedding-3-small"

_log = structlog.get_logger(__name__)


@asynccontextmanager
async def open_service(settings: EmbeddingSettings, ch: ClickHouse) -> AsyncIterator[RunningServer]:
    """Serves `loom.embedding.v1` until it is left.

    Args:
        settings: Its settings.
        ch: The database.

    Raises:
        SettingsError: The settings ask for what cannot be served.
        ListenError: The address cannot be bound.
    """
    await migrate(ch, NAME, PACKAGE)
    async with AsyncExitStack() as stack:
        peers = await stack.enter_async_context(open_peers(settings, NAME))
        model = await stack.enter_async_context(open_model(settings, peers.model_calls(settings), peers.ledger))
        shared = open_shared_cache(model.served, settings, ch)
        if isinstance(shared, SharedCache):
            stack.push_async_callback(shared.aclose)
        calibration = build_calibration(model, settings, ch)
        workers = Workers()
        status = CalibrationStatus(build_status(model, settings), calibration.calibrations)
        spec = ServiceSpec(
            name=NAME,
            listen=settings.embedding_listen,
            services=[
                Service(
                    pb_grpc.add_EmbeddingServiceServicer_to_server, build_servicer(model, settings, shared), FULL_NAME
                ),
                calibration.service,
                erasure_service(ch, CENSUS),
            ],
            status=WorkerStatus(status, NAME, lambda: workers.ended),
        )
        server = await stack.enter_async_context(serving(spec, settings, peers.deps))
        # After the server: a start does not wait for the model to be measured.
        stack.push_async_callback(workers.close)
        for name, work in {**_probe(model), **calibration.work(settings)}.items():
            workers.start(name, work)
        yield server


@dataclass(frozen=True, slots=True)
class CalibrationParts:
    """What measures the served model and tells its thresholds."""

    calibrations: Calibrations
    namespaces: NamespaceCalibrations
    keeper: CalibrationKeeper
    recalibration: Recalibration

    @property
    def service(self) -> Service:
        """What a server serves."""
        return Service(
            calibration_pb2_grpc.add_CalibrationServiceServicer_to_server,
            CalibrationServicer(self.calibrations, self.namespaces),
            CALIBRATION_NAME,
        )

    def work(self, settings: EmbeddingSettings) -> dict[str, Coroutine[None, None, None]]:
        """Returns what runs beside the calls, by name."""
        again = {"recalibration": self.recalibration.run()} if settings.recalibration_enabled else {}
        return {"calibration": self.keeper.run(), **again}


def build_calibration(
    model: OpenModel, settings: EmbeddingSettings, ch: ClickHouse, clock: Clock | None = None
) -> CalibrationParts:
    """Returns the calibration of an open model, over a migrated database."""
    clock = clock or SystemClock()
    if not settings.adaptive_thresholds and not model.served.fake and model.served.name != _TUNED_FOR:
        _log.warning("adaptive_thresholds_off", model=model.served.name, tuned_for=_TUNED_FOR)
    rows, probe = CalibrationRepository(ch), Probe(model.embedder)
    calibrations = Calibrations(rows, probe, model.served, clock=clock, enabled=settings.adaptive_thresholds)
    namespaces = NamespaceCalibrations(rows, probe, model.served, calibrations, clock)
    return CalibrationParts(
        calibrations,
        namespaces,
        CalibrationKeeper(calibrations, settings.calibration_refresh_s),
        Recalibration(rows, calibrations, namespaces, model.served, Leases(ch, NAME), clock),
    )


def open_shared_cache(
    served: ServedModel, settings: EmbeddingSettings, ch: ClickHouse, clock: Clock | None = None
) -> SharedVectors:
    """Returns the cache that processes share: by default for a model that is asked over the network only."""
    max_chars = settings.cache_shared_max_chars
    if max_chars is None:
        max_chars = 0 if served.provider in {FAKE, LOCAL} else _SHARED_MAX_CHARS
    if not max_chars:
        return NoSharedVectors()
    table = VectorRepository(ch, served.name, served.dim)
    return SharedCache(
        table, served.name, max_chars=max_chars, ttl_s=settings.cache_ttl_s, clock=clock or SystemClock()
    )


def build_status(model: OpenModel, settings: EmbeddingSettings) -> EmbeddingStatus:
    """Returns what tells how an open model fares."""
    return EmbeddingStatus(
        model.selection,
        model.served,
        model.health,
        model.seen_dim,
        wanted_dim=settings.dim,
        require_real=settings.require_real_providers,
    )


def _probe(model: OpenModel) -> dict[str, Coroutine[None, None, None]]:
    """Returns the look at a remote model's width; a local one was looked at when it was loaded."""
    return {"width": probe_width(model.embedder)} if model.remote else {}


def build_servicer(
    model: OpenModel, settings: EmbeddingSettings, shared: SharedVectors | None = None, clock: Clock | None = None
) -> EmbeddingServicer:
    """Returns the servicer over an open model and the views over it."""
    cache = QueryCache(settings.cache_size, settings.cache_ttl_s, (clock or SystemClock()).monotonic_s)

    def serving_with(embedder: Embedder, shared: SharedVectors | None) -> Served:
        served = replace(model.served, name=embedder.model_name, dim=embedder.dim)
        return Served(
            QueryEmbedding(
                embedder, served, model.tokens, cache, shared=shared, gate=model.gate, orphans=model.orphans
            ),
            TextEmbedding(embedder, served, model.tokens, shared, gate=model.gate),
            served,
        )

    # The table of shared vectors holds those of one model.
    views = {label: serving_with(view, None) for label, view in model.views.items()}
    return EmbeddingServicer(serving_with(model.embedder, shared), views)
