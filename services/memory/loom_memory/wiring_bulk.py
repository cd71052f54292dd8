"""Builds what moves and removes memories in bulk: export, import, erasures and the purge."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from loom.memory.v1 import erasure_pb2_grpc, transfer_pb2_grpc
from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse
from loom_common.clock import Clock
from loom_common.erasure import (
    STEP_SERVICE,
    ErasureSteps,
    ErasureStepServicer,
    add_erasure_steps,
)
from loom_common.leases import Leases
from loom_common.server import Service
from loom_memory.api.erasure import ErasureServicer
from loom_memory.api.transfer import TransferServicer
from loom_memory.app.bulk import BulkWriter
from loom_memory.app.commit import Commits
from loom_memory.app.embedding import EmbeddingPort
from loom_memory.app.erasure.desk import ErasureDesk
from loom_memory.app.erasure.peers import ErasurePeer, LocalPeer
from loom_memory.app.erasure.rows import RowEraser
from loom_memory.app.erasure.saga import ErasureSaga
from loom_memory.app.export import MemoryExport
from loom_memory.app.importing import MemoryImport
from loom_memory.app.statistics import StatisticsCache
from loom_memory.app.text_gates import TextGates
from loom_memory.app.write import MemoryWriter
from loom_memory.app.write_versions import WriteVersions
from loom_memory.settings import MemorySettings
from loom_memory.store.census import CENSUS
from loom_memory.store.embeddings import EmbeddingRepository
from loom_memory.store.erasures import ErasureRepository
from loom_memory.store.memories import TABLE as MEMORY
from loom_memory.store.memories import MemoryRepository
from loom_memory.store.redactions import RedactionRepository
from loom_memory.store.removals import RemovalRepository
from loom_memory.store.transfer import TransferRepository
from loom_memory.store.versions import VersionRepository
from loom_memory.workers.erasure import ErasureWorker
from loom_memory.workers.purge import Purge

# Another process's call that began before an erasure has ended by then. Source: the longest time of a call, and some.
_SETTLE_S = 330.0


@dataclass(frozen=True, slots=True)
class Core:
    """What writes are made of, shared with the other parts of the process."""

    ch: ClickHouse
    memories: MemoryRepository
    versions: VersionRepository
    embeddings: EmbeddingRepository
    embedding: EmbeddingPort
    writer: MemoryWriter
    commits: Commits
    gates: TextGates
    clock: Clock
    numbers: WriteVersions
    statistics: StatisticsCache
    stubbed: Callable[[Scope], None]
    leases: Leases


@dataclass(frozen=True, slots=True)
class BulkParts:
    """The use cases and workers."""

    export: MemoryExport
    imports: MemoryImport
    steps: ErasureSteps
    erasures: ErasureRepository
    desk: ErasureDesk
    saga: ErasureSaga
    erasure_worker: ErasureWorker
    purge: Purge

    def services(self) -> tuple[Service, ...]:
        """Returns what memory serves of them."""
        return (
            Service(
                transfer_pb2_grpc.add_TransferServiceServicer_to_server,
                TransferServicer(self.export, self.imports),
                "loom.memory.v1.TransferService",
            ),
            Service(
                erasure_pb2_grpc.add_ErasureServiceServicer_to_server,
                ErasureServicer(self.desk),
                "loom.memory.v1.ErasureService",
            ),
            Service(add_erasure_steps, ErasureStepServicer(self.steps), STEP_SERVICE),
        )


def build_bulk(
    core: Core, settings: MemorySettings, peers: Sequence[ErasurePeer], *, is_exclusive: bool | None = None
) -> BulkParts:
    """Returns the parts over those of the writer.

    Args:
        core: What writes are made of.
        settings: Their settings.
        peers: The other services that take part in erasures.
        is_exclusive: Whether this process alone writes the database. Default: what the database says.
    """
    ch, clock = core.ch, core.clock
    alone = ch.exclusive if is_exclusive is None else is_exclusive
    redactions, removals = RedactionRepository(ch), RemovalRepository(ch)
    rows = RowEraser(
        core.commits,
        core.memories,
        core.versions,
        core.embeddings,
        removals,
        redactions,
        core.embedding,
        clock=clock,
        numbers=core.numbers,
        statistics=core.statistics,
        stubbed=core.stubbed,
    )
    census = tuple(replace(held, erased_with=rows.erase) if held.table == MEMORY.name else held for held in CENSUS)
    steps = ErasureSteps(ch, census)
    erasures = ErasureRepository(ch, clock)
    saga = ErasureSaga(
        erasures,
        (LocalPeer("memory", steps), *peers),
        rows,
        clock,
        core.numbers,
        settle_s=0.0 if alone else _SETTLE_S,
    )
    worker = ErasureWorker(erasures, saga, core.leases)
    bulk = BulkWriter(
        core.writer,
        core.commits,
        core.memories,
        core.versions,
        core.embeddings,
        clock=clock,
        numbers=core.numbers,
        statistics=core.statistics,
        stubbed=core.stubbed,
        is_exclusive=alone,
    )
    return BulkParts(
        export=MemoryExport(TransferRepository(ch), core.embedding, clock=clock, numbers=core.numbers),
        imports=MemoryImport(bulk, core.gates, core.embedding),
        steps=steps,
        erasures=erasures,
        desk=ErasureDesk(erasures, redactions, clock, worker.begun),
        saga=saga,
        erasure_worker=worker,
        purge=Purge(
            removals,
            steps,
            core.leases,
            clock,
            after_days=settings.purge_after_days,
            interval_s=settings.purge_interval_s,
        ),
    )
