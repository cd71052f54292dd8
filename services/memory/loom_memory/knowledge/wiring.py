"""Builds the knowledge plane and hands its parts to each other."""

from dataclasses import dataclass
from functools import partial

from loom.memory.v1 import knowledge_pb2_grpc
from loom_common.clickhouse import ClickHouse
from loom_common.clock import Clock
from loom_common.conditional_writes import Claims
from loom_common.leases import Leases
from loom_common.ledger import LedgerSink
from loom_common.model_calls.gate import ModelCallGate
from loom_common.server import Service
from loom_common.workers import Workers
from loom_memory.api.repeats import Repeats
from loom_memory.app.batches import StoredTexts
from loom_memory.app.embedding import EmbeddingPort
from loom_memory.app.holds import WriterHolds
from loom_memory.app.llm import LlmPort
from loom_memory.app.thresholds import ThresholdsInForce
from loom_memory.knowledge.api.knowledge import KnowledgeServicer
from loom_memory.knowledge.api.uploads import Intake
from loom_memory.knowledge.app.conversion import Conversion, ConversionBounds, ConversionProcesses
from loom_memory.knowledge.app.fetching import Fetch, UrlFetch
from loom_memory.knowledge.app.ingest import Ingestion
from loom_memory.knowledge.app.read import DocumentReader
from loom_memory.knowledge.app.search import KnowledgeSearch
from loom_memory.knowledge.app.synthesis import Synthesizer
from loom_memory.knowledge.app.upkeep import EMBEDDING, SWEEP, Leftovers, MissingVectors
from loom_memory.knowledge.app.vectors import KnowledgeVectors
from loom_memory.knowledge.store.chunks import ChunkRepository
from loom_memory.knowledge.store.documents import DocumentRepository
from loom_memory.knowledge.store.embeddings import KnowledgeEmbeddingRepository
from loom_memory.knowledge.store.leftovers import LeftoverRepository
from loom_memory.knowledge.store.sections import SectionRepository
from loom_memory.settings import MemorySettings

_NAME = "memory"


@dataclass(frozen=True, slots=True)
class KnowledgeParts:
    """The use cases and workers of the plane over one database."""

    ingestion: Ingestion
    intake: Intake
    reader: DocumentReader
    search: KnowledgeSearch
    synthesizer: Synthesizer
    missing_vectors: MissingVectors
    leftovers: Leftovers
    vectors: KnowledgeVectors
    repeats: Repeats

    def service(self) -> Service:
        """Returns what the plane serves."""
        return Service(
            knowledge_pb2_grpc.add_KnowledgeServiceServicer_to_server,
            KnowledgeServicer(self.intake, self.ingestion, self.reader, self.search, self.synthesizer, self.repeats),
            "loom.memory.v1.KnowledgeService",
        )

    def start(self, workers: Workers) -> None:
        """Starts what runs beside the calls."""
        workers.start(EMBEDDING, self.missing_vectors.run())
        workers.start(SWEEP, self.leftovers.run())


def build_knowledge(
    ch: ClickHouse,
    embedding: EmbeddingPort,
    thresholds: ThresholdsInForce,
    llm: LlmPort,
    ledger: LedgerSink,
    model_calls: ModelCallGate,
    workers: Workers,
    settings: MemorySettings,
    clock: Clock,
    repeats: Repeats,
    *,
    conversion: Conversion | None = None,
    fetch: Fetch | None = None,
) -> KnowledgeParts:
    """Returns the parts over a migrated database; `conversion` and `fetch` are for tests."""
    documents, sections, chunks = DocumentRepository(ch), SectionRepository(ch), ChunkRepository(ch)
    embeddings, vectors, leases = KnowledgeEmbeddingRepository(ch), KnowledgeVectors(ch), Leases(ch, _NAME)
    missing = MissingVectors(
        vectors,
        StoredTexts(embedding, EMBEDDING, clock, ledger, model_calls),
        WriterHolds(model_calls, clock),
        leases,
        clock,
    )
    leftovers = Leftovers(
        LeftoverRepository(ch), documents, leases, workers, clock, interval_s=settings.sweep_interval_s
    )
    ingestion = Ingestion(
        documents,
        sections,
        chunks,
        embeddings,
        embedding,
        conversion or ConversionProcesses(_conversion_bounds(settings)),
        clock=clock,
        claims=None if ch.exclusive else Claims(ch, _NAME),
        max_bytes=settings.knowledge_max_file_bytes,
        pending=missing.notice,
        deleted=leftovers.deleted,
    )
    reader = DocumentReader(documents, sections, embeddings, embedding)
    finding = partial(KnowledgeSearch, documents, sections, chunks, embeddings, embedding, thresholds, llm)
    search = finding(rerank_default=settings.knowledge_rerank_default, reads_llm_free=settings.reads_llm_free)
    intake = Intake(ingestion, fetch or _fetch(settings), max_bytes=settings.knowledge_max_file_bytes)
    synthesizer = Synthesizer(reader, ingestion, llm)
    return KnowledgeParts(ingestion, intake, reader, search, synthesizer, missing, leftovers, vectors, repeats)


def _conversion_bounds(settings: MemorySettings) -> ConversionBounds:
    return ConversionBounds(
        text=settings.knowledge_bounds,
        timeout_s=settings.knowledge_conversion_timeout_s,
        memory_bytes=settings.knowledge_conversion_memory_bytes,
        at_once=settings.knowledge_conversions,
    )


def _fetch(settings: MemorySettings) -> Fetch:
    return UrlFetch(
        settings.knowledge_url_allowlist,
        max_bytes=settings.knowledge_max_file_bytes,
        timeout_s=settings.knowledge_url_timeout_s,
    )
