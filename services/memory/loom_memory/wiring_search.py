"""Builds what searches memories, and what records, judges and repeats searches."""

from collections.abc import Coroutine
from dataclasses import dataclass

from loom.memory.v1 import exposures_pb2_grpc, replay_pb2_grpc
from loom_common.auth.directory import Directory
from loom_common.clickhouse import ClickHouse
from loom_common.clock import Clock
from loom_common.features import Feature
from loom_common.ledger import LedgerSink
from loom_common.server import Service
from loom_common.workers import Workers
from loom_memory.api.exposures import ExposureServicer
from loom_memory.api.replay import ReplayServicer
from loom_memory.app.embedding import EmbeddingPort
from loom_memory.app.llm import LlmPort
from loom_memory.app.pending import PendingVectors
from loom_memory.app.search import MemorySearch
from loom_memory.app.search.answering import Answering
from loom_memory.app.search.as_of import Past
from loom_memory.app.search.beginning import Beginning
from loom_memory.app.search.exposures import Exposures, RecallCredit
from loom_memory.app.search.helpers import HelperBounds
from loom_memory.app.search.judging import QualityJudge
from loom_memory.app.search.legwork import Legwork
from loom_memory.app.search.namespaces import CallerNamespaces, FanOut
from loom_memory.app.search.pages import SearchPages
from loom_memory.app.search.ports import EntityLeg, MemoryRows, Reinforcement, Vectors
from loom_memory.app.search.replay import Replaying
from loom_memory.app.search.reranking import Reranking
from loom_memory.app.search.several import SeveralSearch
from loom_memory.app.search.traces import Traces
from loom_memory.app.search.wordings import Wordings
from loom_memory.app.statistics import StatisticsCache
from loom_memory.app.thresholds import ThresholdsInForce
from loom_memory.app.write_versions import WriteVersions
from loom_memory.settings import MemorySettings
from loom_memory.store.as_of import AsOfRepository
from loom_memory.store.embeddings import EmbeddingRepository
from loom_memory.store.exposures import ExposureRepository
from loom_memory.store.judgements import JudgementRepository
from loom_memory.store.legs import LegRepository
from loom_memory.store.memories import MemoryRepository
from loom_memory.store.prefix_vectors import PrefixVectors
from loom_memory.store.search_pages import SearchPageRepository
from loom_memory.store.search_traces import SearchTraceRepository
from loom_memory.store.uses import StoredUses


@dataclass(frozen=True, slots=True)
class SearchBase:
    """What searching needs of the rest of memory.

    Attributes:
        ch: The store; what is looked up by moment, name or page is read from it and never from memory.
        rows: Memories as searches read them.
        vectors: Their vectors as searches compare them.
        llm: The model; one that is not there helps with nothing.
        entities: Finds memories by what they are about.
    """

    ch: ClickHouse
    rows: MemoryRows
    vectors: Vectors
    legs: LegRepository
    embedding: EmbeddingPort
    thresholds: ThresholdsInForce
    llm: LlmPort
    entities: EntityLeg
    directory: Directory
    ledger: LedgerSink
    clock: Clock
    numbers: WriteVersions
    statistics: StatisticsCache
    pending: PendingVectors
    workers: Workers


@dataclass(frozen=True, slots=True)
class SearchParts:
    """What searches."""

    search: MemorySearch
    namespaces: CallerNamespaces
    answering: Answering
    exposures: Exposures
    recall: RecallCredit
    traces: Traces
    judge: QualityJudge
    replaying: Replaying

    def services(self) -> tuple[Service, ...]:
        """Returns what is served of it, beside `MemoryService`."""
        return (
            Service(
                exposures_pb2_grpc.add_ExposureServiceServicer_to_server,
                ExposureServicer(self.exposures),
                "loom.memory.v1.ExposureService",
            ),
            Service(
                replay_pb2_grpc.add_ReplayServiceServicer_to_server,
                ReplayServicer(self.replaying),
                "loom.memory.v1.ReplayService",
            ),
        )

    def work(self) -> tuple[tuple[str, Coroutine[None, None, None]], ...]:
        """Returns what runs beside the calls, by name."""
        return (
            ("exposures", self.exposures.rows.run()),
            ("search_traces", self.traces.rows.run()),
            (Feature.RETRIEVAL_JUDGE.value, self.judge.run()),
        )

    async def close(self) -> None:
        """Stores what was taken down and waits."""
        await self.exposures.rows.flush()
        await self.traces.rows.flush()


def build_search(base: SearchBase, settings: MemorySettings) -> SearchParts:
    """Returns the parts."""
    llm_free = settings.reads_llm_free
    memories, embeddings, legs = MemoryRepository(base.ch), EmbeddingRepository(base.ch), base.legs
    exposed = ExposureRepository(base.ch)
    recall = RecallCredit(exposed, StoredUses(base.ch), base.clock, base.workers.start)
    past = Past(AsOfRepository(base.ch), memories, embeddings, legs, base.embedding)

    def searching(vectors: Vectors, reinforcement: Reinforcement) -> MemorySearch:
        legwork = Legwork(base.embedding, base.entities)
        beginning = Beginning(
            base.rows,
            vectors,
            legs,
            past,
            base.embedding,
            base.thresholds,
            statistics=base.statistics,
            reinforcement=reinforcement,
            numbers=base.numbers,
            clock=base.clock,
        )
        bounds = HelperBounds(settings.fallback_max_llm_calls, settings.hyde_timeout_s)
        wordings = Wordings(legwork, base.llm, bounds, llm_free=llm_free)
        reranking = Reranking(base.llm, base.directory, llm_free=llm_free)
        return MemorySearch(beginning, legwork, wordings, reranking, base.pending)

    search = searching(base.vectors, recall)
    namespaces = CallerNamespaces(base.directory, FanOut(settings.fanout_kinds, settings.fanout_max_namespaces))
    exposures = Exposures(exposed, base.clock, recorded=settings.exposure_ledger_enabled)
    traced = SearchTraceRepository(base.ch)
    traces = Traces(traced, base.directory, base.clock, days=settings.trace_days)
    rate = 0.0 if llm_free else settings.retrieval_judge_sample_rate
    judge = QualityJudge(base.llm, JudgementRepository(base.ch), base.ledger, base.clock, rate=rate)
    pages = SearchPages(SearchPageRepository(base.ch), memories, past, base.directory, base.clock)
    return SearchParts(
        search=search,
        namespaces=namespaces,
        answering=Answering(SeveralSearch(search, namespaces), pages, exposures, traces, judge),
        exposures=exposures,
        recall=recall,
        traces=traces,
        judge=judge,
        replaying=Replaying(
            traced,
            search,
            lambda width: searching(PrefixVectors(base.ch, width), recall),
            base.embedding,
            base.clock,
        ),
    )
