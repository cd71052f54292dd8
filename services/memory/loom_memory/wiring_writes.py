"""Builds what writes memories and knows of single ones: gates, verdicts, conflicts, restoring, inspecting."""

from collections.abc import Callable
from dataclasses import dataclass

from loom.memory.v1 import conflicts_pb2_grpc
from loom_common.auth.directory import Directory
from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse
from loom_common.clock import Clock
from loom_common.conditional_writes import Claims
from loom_common.features import Feature
from loom_common.leases import Leases
from loom_common.ledger import LedgerSink
from loom_common.model_calls.gate import ModelCallGate
from loom_common.server import Service
from loom_memory.api.conflicts import ConflictServicer
from loom_memory.api.repeats import Repeats
from loom_memory.app.classifier import ClassifierPort
from loom_memory.app.commit import Commits
from loom_memory.app.conflicts import ConflictDesk
from loom_memory.app.embedding import EmbeddingPort
from loom_memory.app.holds import WriterHolds
from loom_memory.app.inspection import MemoryInspector
from loom_memory.app.llm import LlmPort
from loom_memory.app.passes import Passes
from loom_memory.app.read import MemoryReader
from loom_memory.app.restoring import MemoryRestorer
from loom_memory.app.statistics import StatisticsCache
from loom_memory.app.text_gates import TextGates
from loom_memory.app.thresholds import ThresholdsInForce
from loom_memory.app.validity import Validity
from loom_memory.app.verdicts import Verdictgiver
from loom_memory.app.write import MemoryWriter
from loom_memory.app.write_versions import WriteVersions
from loom_memory.domain.memory import Identity
from loom_memory.settings import MemorySettings
from loom_memory.store.conflicts import ConflictRepository
from loom_memory.store.copies import VersionVectors
from loom_memory.store.embeddings import EmbeddingRepository
from loom_memory.store.exposure_counts import ExposureCounts
from loom_memory.store.memories import MemoryRepository
from loom_memory.store.signals import SignalRepository
from loom_memory.store.versions import VersionRepository
from loom_memory.store.worker_passes import WorkerPassRepository
from loom_memory.workers.conflicts import ConflictResolver
from loom_memory.workers.leading import Leading


@dataclass(frozen=True, slots=True)
class Base:
    """What writes need of the rest of memory.

    Attributes:
        stubbed: Hears of a memory that was stored without vectors.
        deleted: Hears of each deletion.
    """

    ch: ClickHouse
    memories: MemoryRepository
    versions: VersionRepository
    embeddings: EmbeddingRepository
    embedding: EmbeddingPort
    thresholds: ThresholdsInForce
    directory: Directory
    reader: MemoryReader
    clock: Clock
    numbers: WriteVersions
    statistics: StatisticsCache
    stubbed: Callable[[Scope], None]
    deleted: Callable[[Scope, Identity, int], None]
    repeats: Repeats
    service: str


@dataclass(frozen=True, slots=True)
class WriteParts:
    """The use cases."""

    commits: Commits
    gates: TextGates
    writer: MemoryWriter
    validity: Validity
    conflicts: ConflictDesk
    restorer: MemoryRestorer
    inspector: MemoryInspector
    repeats: Repeats

    def services(self) -> tuple[Service, ...]:
        """Returns what they serve beside `MemoryService`."""
        return (
            Service(
                conflicts_pb2_grpc.add_ConflictServiceServicer_to_server,
                ConflictServicer(self.conflicts, self.repeats),
                "loom.memory.v1.ConflictService",
            ),
        )


def build_writes(base: Base, classifier: ClassifierPort | None) -> WriteParts:
    """Returns the parts over a migrated database.

    Args:
        base: What they need.
        classifier: What labels texts; None where nothing does.
    """
    ch, memories, clock = base.ch, base.memories, base.clock
    marks, vectors, signals = ConflictRepository(ch), VersionVectors(ch), SignalRepository(ch)
    commits = Commits(
        memories,
        base.versions,
        base.embeddings,
        base.embedding,
        marks,
        clock=clock,
        statistics=base.statistics,
        stubbed=base.stubbed,
        claims=None if ch.exclusive else Claims(ch, base.service),
    )
    gates = TextGates(base.directory, classifier, clock)
    validity = Validity(commits, memories, vectors, marks, base.embedding, clock=clock, numbers=base.numbers)
    writer = MemoryWriter(
        commits,
        memories,
        base.embedding,
        gates,
        Verdictgiver(memories, base.embeddings, base.embedding, base.thresholds),
        validity,
        signals,
        clock=clock,
        numbers=base.numbers,
        statistics=base.statistics,
        deleted=base.deleted,
    )
    return WriteParts(
        commits=commits,
        gates=gates,
        writer=writer,
        validity=validity,
        conflicts=ConflictDesk(marks, memories, writer, validity, clock=clock, numbers=base.numbers),
        restorer=MemoryRestorer(memories, base.versions, writer, clock=clock),
        inspector=MemoryInspector(
            base.reader, memories, base.versions, vectors, marks, signals, ExposureCounts(ch), clock=clock
        ),
        repeats=base.repeats,
    )


def build_resolver(
    base: Base,
    parts: WriteParts,
    llm: LlmPort,
    ledger: LedgerSink,
    model_calls: ModelCallGate,
    leases: Leases,
    settings: MemorySettings,
) -> Leading:
    """Returns the worker that judges conflicts."""
    worker = ConflictResolver(
        ConflictRepository(base.ch),
        base.memories,
        parts.conflicts,
        parts.validity,
        llm,
        WriterHolds(model_calls, base.clock),
        Passes(Feature.CONFLICT_RESOLVER, base.clock, ledger),
        base.clock,
        enabled=settings.conflict_resolver_enabled,
        model=settings.conflict_resolver_model,
    )
    return Leading(worker, leases, WorkerPassRepository(base.ch), base.clock)
