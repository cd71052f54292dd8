"""Builds what gives vectors to rows that have none of the served model."""

from collections.abc import Sequence

from loom_common.clickhouse import ClickHouse
from loom_common.clock import Clock
from loom_common.leases import Leases
from loom_common.ledger import LedgerSink
from loom_common.model_calls.gate import ModelCallGate
from loom_memory.app.batches import StoredTexts
from loom_memory.app.embedding import EmbeddingPort
from loom_memory.app.entities.vectors import EntityVectors
from loom_memory.app.holds import WriterHolds
from loom_memory.app.reembedding import OP as REEMBED
from loom_memory.app.reembedding import Reembedding
from loom_memory.app.vector_tables import MemoryVectors
from loom_memory.knowledge.app.vectors import KnowledgeVectors
from loom_memory.profiles.wiring import item_vectors
from loom_memory.store.embeddings import EmbeddingRepository
from loom_memory.store.entities import EntityRepository
from loom_memory.store.rewrites import VectorRewrites
from loom_memory.store.stubs import StubRepository
from loom_memory.store.versions import VersionRepository
from loom_memory.workers.embedding import NAME as EMBEDDING_WORKER
from loom_memory.workers.embedding import EmbeddingWorker


def build_reembedding(
    ch: ClickHouse,
    embedding: EmbeddingPort,
    ledger: LedgerSink,
    model_calls: ModelCallGate,
    leases: Leases,
    clock: Clock,
    identifying: Sequence[str],
) -> Reembedding:
    """Returns what gives every stored text a vector of the served model."""
    rewrites = VectorRewrites(ch)
    # Every table that has a column embedding_model; a test looks for one that is not here.
    tables = (
        MemoryVectors(ch, rewrites, EmbeddingRepository(ch), VersionRepository(ch), clock),
        EntityVectors(EntityRepository(ch), clock),
        KnowledgeVectors(ch),
        item_vectors(ch, embedding, clock),
    )
    texts = StoredTexts(embedding, REEMBED, clock, ledger, model_calls)
    return Reembedding(tables, texts, rewrites, leases, model_calls, clock, identifying=identifying)


def build_embedding_worker(
    ch: ClickHouse,
    embedding: EmbeddingPort,
    ledger: LedgerSink,
    model_calls: ModelCallGate,
    leases: Leases,
    clock: Clock,
) -> EmbeddingWorker:
    """Returns the worker that embeds memories that were stored without vectors."""
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
