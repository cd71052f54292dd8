"""Builds memory and hands its parts to each other."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from loom.memory.v1 import memory_pb2_grpc, search_pb2_grpc
from loom_common.auth.directory import Directory
from loom_common.clickhouse import ClickHouse
from loom_common.clock import Clock, SystemClock
from loom_common.conditional_writes import Claims
from loom_common.idempotency import IdempotencyKeys
from loom_common.leases import Leases
from loom_common.migrations import migrate
from loom_common.peers import open_peers
from loom_common.server import RunningServer, Service, ServiceSpec, serving
from loom_memory.api.memory import MemoryServicer
from loom_memory.api.repeats import Repeats
from loom_memory.api.search import SearchServicer
from loom_memory.app.embedding import EmbeddingPort
from loom_memory.app.embedding_grpc import GrpcEmbedding, QueryBound
from loom_memory.app.read import MemoryReader
from loom_memory.app.search import MemorySearch
from loom_memory.app.statistics import StatisticsCache
from loom_memory.app.status import MemoryStatus
from loom_memory.app.unified import FanOut, UnifiedSearch
from loom_memory.app.write import MemoryWriter
from loom_memory.app.write_versions import WriteVersions
from loom_memory.settings import MemorySettings
from loom_memory.store.embeddings import EmbeddingRepository
from loom_memory.store.memories import MemoryRepository
from loom_memory.store.versions import VersionRepository
from loom_memory.workers.deletions import DeletionMarker
from loom_memory.workers.supervision import Workers
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
        )


def build_parts(
    ch: ClickHouse,
    embedding: EmbeddingPort,
    directory: Directory,
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
    search = MemorySearch(memories, embeddings, embedding, statistics=statistics, numbers=numbers, clock=clock)
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
            claims=None if ch.exclusive else Claims(ch, NAME),
        ),
        reader=MemoryReader(memories, versions, clock=clock, numbers=numbers),
        search=search,
        unified=UnifiedSearch(search, directory, FanOut(settings.fanout_kinds, settings.fanout_max_namespaces)),
        workers=workers,
        deletions=deletions,
        sweep=Sweep(versions, embeddings, Leases(ch, NAME), clock, interval_s=settings.sweep_interval_s),
        repeats=Repeats(IdempotencyKeys(ch, NAME, clock)),
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
        embedding = GrpcEmbedding(
            peers.channel(settings.embedding_addr), QueryBound(settings.embed_bound_s, settings.embed_bound_retries)
        )
        parts = build_parts(ch, embedding, peers.directory, settings)
        stack.push_async_callback(parts.deletions.close)
        stack.push_async_callback(parts.workers.close)
        status = MemoryStatus(ch, embedding, lambda: parts.workers.ended)
        parts.workers.start("learn_model", status.learn_model())
        parts.workers.start("sweep", parts.sweep.run())
        spec = ServiceSpec(NAME, settings.memory_listen, parts.services(), status)
        yield await stack.enter_async_context(serving(spec, settings, peers.deps))
