"""Builds memory and hands its parts to each other."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from loom.memory.v1 import maintenance_pb2_grpc, memory_pb2_grpc, search_pb2_grpc
from loom_common.auth.directory import Directory
from loom_common.clickhouse import ClickHouse
from loom_common.clock import Clock, SystemClock
from loom_common.conditional_writes import Claims
from loom_common.idempotency import IdempotencyKeys
from loom_common.leases import Leases
from loom_common.ledger import LedgerSink
from loom_common.migrations import migrate
from loom_common.model_calls.gate import ModelCallGate
from loom_common.peers import open_peers
from loom_common.server import RunningServer, Service, ServiceSpec, serving
from loom_common.workers import Workers
from loom_memory.api.maintenance import MaintenanceServicer
from loom_memory.api.memory import MemoryServicer
from loom_memory.api.repeats import Repeats
from loom_memory.api.search import SearchServicer
from loom_memory.app.batches import StoredTexts
from loom_memory.app.embedding import EmbeddingPort
from loom_memory.app.embedding_grpc import GrpcEmbedding, QueryBound
from loom_memory.app.holds import WriterHolds
from loom_memory.app.pending import PendingVectors
from loom_memory.app.read import MemoryReader
from loom_memory.app.reembedding import OP as REEMBED
from loom_memory.app.reembedding import Reembedding
from loom_memory.app.search import MemorySearch
from loom_memory.app.statistics import StatisticsCache
from loom_memory.app.status import MemoryStatus
from loom_memory.app.thresholds import ThresholdsInForce, ThresholdsPort
from loom_memory.app.thresholds_grpc import GrpcThresholds
from loom_memory.app.unified import FanOut, UnifiedSearch
from loom_memory.app.vector_tables import MemoryVectors
from loom_memory.app.write import MemoryWriter
from loom_memory.app.write_versions import WriteVersions
from loom_memory.settings import MemorySettings
from loom_memory.store.embeddings import EmbeddingRepository
from loom_memory.store.memories import MemoryRepository
from loom_memory.store.rewrites import VectorRewrites
from loom_memory.store.stubs import StubRepository
from loom_memory.store.versions import VersionRepository
from loom_memory.workers.deletions import DeletionMarker
from loom_memory.workers.embedding import NAME as EMBEDDING_WORKER
from loom_memory.workers.embedding import EmbeddingWorker
from loom_memory.workers.sweep import Sweep

NAME = "memory"
PACKAGE = "loom_memory"


@dataclass(frozen=True, slots=True)
class MemoryParts:
    """The use cases and workers over one database."""

    writer: MemoryWriter
    reader: MemoryReader
    search: MemorySearch
    unified: UnifiedSearch
    workers: Workers
    deletions: DeletionMarker
    sweep: Sweep
    reembedding: Reembedding
    embedding_worker: EmbeddingWorker
    repeats: Repeats

    def services(self) -> tuple[Service, ...]:
        """Returns what memory serves."""
        return (
            Service(
                memory_pb2_grpc.add_MemoryServiceServicer_to_server,
                MemoryServicer(self.writer, self.reader, self.search, self.repeats),
                "loom.memory.v1.MemoryService",
            ),
            Service(
                search_pb2_grpc.add_SearchServiceServicer_to_server,
                SearchServicer(self.unified),
                "loom.memory.v1.SearchService",
            ),
            Service(
                maintenance_pb2_grpc.add_MaintenanceServiceServicer_to_server,
                MaintenanceServicer(self.reembedding),
                "loom.memory.v1.MaintenanceService",
            ),
        )


def build_parts(
    ch: ClickHouse,
    embedding: EmbeddingPort,
    thresholds: ThresholdsPort,
    directory: Directory,
    ledger: LedgerSink,
    model_calls: ModelCallGate,
    settings: MemorySettings,
    clock: Clock | None = None,
) -> MemoryParts:
    """Returns the parts over a migrated database."""
    clock = clock or SystemClock()
    memories, versions, embeddings = MemoryRepository(ch), VersionRepository(ch), EmbeddingRepository(ch)
    numbers = WriteVersions(clock)
    statistics = StatisticsCache(memories, clock)
    workers = Workers()
    deletions = DeletionMarker(versions, workers, clock)
    pending = PendingVectors(VectorRewrites(ch), clock)
    leases = Leases(ch, NAME)
    search = MemorySearch(
        memories,
        embeddings,
        embedding,
        ThresholdsInForce(thresholds, settings, clock),
        statistics=statistics,
        pending=pending,
        numbers=numbers,
        clock=clock,
    )
    return MemoryParts(
        writer=MemoryWriter(
            memories,
            versions,
            embeddings,
            embedding,
            clock=clock,
            numbers=numbers,
            statistics=statistics,
            deleted=deletions.add,
            stubbed=pending.stubbed,
            claims=None if ch.exclusive else Claims(ch, NAME),
        ),
        reader=MemoryReader(memories, versions, clock=clock, numbers=numbers),
        search=search,
        unified=UnifiedSearch(search, directory, FanOut(settings.fanout_kinds, settings.fanout_max_namespaces)),
        workers=workers,
        deletions=deletions,
        sweep=Sweep(versions, embeddings, leases, clock, interval_s=settings.sweep_interval_s),
        reembedding=_reembedding(ch, embedding, ledger, model_calls, leases, clock, settings.identifying),
        embedding_worker=_embedding_worker(ch, embedding, ledger, model_calls, leases, clock),
        repeats=Repeats(IdempotencyKeys(ch, NAME, clock)),
    )


def _reembedding(
    ch: ClickHouse,
    embedding: EmbeddingPort,
    ledger: LedgerSink,
    model_calls: ModelCallGate,
    leases: Leases,
    clock: Clock,
    identifying: Sequence[str],
) -> Reembedding:
    rewrites = VectorRewrites(ch)
    # Every table that has a column embedding_model; a test looks for one that is not here.
    tables = (MemoryVectors(ch, rewrites, EmbeddingRepository(ch), VersionRepository(ch), clock),)
    texts = StoredTexts(embedding, REEMBED, clock, ledger, model_calls)
    return Reembedding(tables, texts, rewrites, leases, model_calls, clock, identifying=identifying)


def _embedding_worker(
    ch: ClickHouse,
    embedding: EmbeddingPort,
    ledger: LedgerSink,
    model_calls: ModelCallGate,
    leases: Leases,
    clock: Clock,
) -> EmbeddingWorker:
    return EmbeddingWorker(
        StubRepository(ch),
        VectorRewrites(ch),
        EmbeddingRepository(ch),
        VersionRepository(ch),
        StoredTexts(embedding, EMBEDDING_WORKER, clock, ledger, model_calls),
        WriterHolds(model_calls, clock),
        leases,
        clock,
    )


@asynccontextmanager
async def open_service(settings: MemorySettings, ch: ClickHouse) -> AsyncIterator[RunningServer]:
    """Serves `loom.memory.v1` over `ch` until it is left.

    Raises:
        SettingsError: A key file cannot be used.
        ListenError: The address is taken.
    """
    await migrate(ch, NAME, PACKAGE)
    async with AsyncExitStack() as stack:
        peers = await stack.enter_async_context(open_peers(settings, NAME))
        channel = peers.channel(settings.embedding_addr)
        embedding = GrpcEmbedding(channel, QueryBound(settings.embed_bound_s, settings.embed_bound_retries))
        model_calls = peers.model_calls(settings)
        parts = build_parts(
            ch, embedding, GrpcThresholds(channel), peers.directory, peers.ledger, model_calls, settings
        )
        stack.push_async_callback(parts.deletions.close)
        stack.push_async_callback(parts.workers.close)
        status = MemoryStatus(ch, embedding, lambda: parts.workers.ended, lambda: parts.embedding_worker.waiting)
        parts.workers.start("learn_model", status.learn_model())
        parts.workers.start("sweep", parts.sweep.run())
        parts.workers.start(EMBEDDING_WORKER, parts.embedding_worker.run())
        spec = ServiceSpec(NAME, settings.memory_listen, parts.services(), status)
        yield await stack.enter_async_context(serving(spec, settings, peers.deps))
