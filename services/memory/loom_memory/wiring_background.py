"""Builds what asks models and what works in the background, and hands its parts to each other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loom.memory.v1 import ask_pb2_grpc, extraction_pb2_grpc, workers_pb2_grpc
from loom_common.auth.directory import Directory
from loom_common.clickhouse import ClickHouse
from loom_common.clock import Clock
from loom_common.features import Feature
from loom_common.leases import Leases
from loom_common.ledger import LedgerSink
from loom_common.model_calls.gate import ModelCallGate
from loom_common.server import Service
from loom_common.workers import Workers
from loom_memory.api.ask import AskServicer
from loom_memory.api.extraction import ExtractionServicer
from loom_memory.api.repeats import Repeats
from loom_memory.api.workers import WorkersServicer
from loom_memory.app.ask.asking import Asking, Recall
from loom_memory.app.ask.briefing import Briefing
from loom_memory.app.ask.synthesis import AskModels, CachePolicy, Synthesis
from loom_memory.app.background import Background, Roster
from loom_memory.app.batches import StoredTexts
from loom_memory.app.embedding import EmbeddingPort
from loom_memory.app.entities.naming import Naming
from loom_memory.app.entities.vectors import EntityVectors
from loom_memory.app.extract.facts import FactExtractor
from loom_memory.app.extract.remembering import Remembering
from loom_memory.app.extract.storing import ConversationStore, Writer
from loom_memory.app.extract.working import ExtractionWork
from loom_memory.app.holds import WriterHolds
from loom_memory.app.llm import LlmPort
from loom_memory.app.passes import Passes
from loom_memory.app.reembedding import LEASE as EMBEDDING_LEASE
from loom_memory.app.search.exposures import Exposures
from loom_memory.settings_background import BackgroundSettings
from loom_memory.store.entities import EntityRepository
from loom_memory.store.erasures import ErasureRepository
from loom_memory.store.extractions import ExtractionRepository
from loom_memory.store.mining import MiningRepository
from loom_memory.store.worker_passes import WorkerPassRepository
from loom_memory.workers.entities import EntityExtractor
from loom_memory.workers.extraction import ExtractionWorker
from loom_memory.workers.leading import Leading, Worker, lease_name
from loom_memory.workers.mining import DIGEST, OBSERVATIONS, REFLECTION, Mining, MiningWorker
from loom_memory.workers.projection_repair import ProjectionRepair


@dataclass(frozen=True, slots=True)
class Around:
    """What the parts need of the rest of memory.

    Attributes:
        ended: Names workers of this process that ended by a fault.
        others: Workers that other parts run.
    """

    ch: ClickHouse
    recall: Recall
    writer: Writer
    embedding: EmbeddingPort
    llm: LlmPort
    directory: Directory
    ledger: LedgerSink
    model_calls: ModelCallGate
    leases: Leases
    repeats: Repeats
    exposures: Exposures
    clock: Clock
    ended: Callable[[], Sequence[str]]
    others: Sequence[Leading] = ()


@dataclass(frozen=True, slots=True)
class BackgroundParts:
    """Use cases and workers."""

    asking: Asking
    briefing: Briefing
    remembering: Remembering
    extraction: ExtractionWorker
    entities: EntityExtractor
    background: Background
    leading: tuple[Leading, ...]
    repeats: Repeats
    exposures: Exposures

    def services(self) -> tuple[Service, ...]:
        """Returns what they serve."""
        return (
            Service(
                ask_pb2_grpc.add_AskServiceServicer_to_server,
                AskServicer(self.asking, self.briefing, self.exposures),
                "loom.memory.v1.AskService",
            ),
            Service(
                extraction_pb2_grpc.add_ExtractionServiceServicer_to_server,
                ExtractionServicer(self.remembering, self.repeats),
                "loom.memory.v1.ExtractionService",
            ),
            Service(
                workers_pb2_grpc.add_WorkersServiceServicer_to_server,
                WorkersServicer(self.background),
                "loom.memory.v1.WorkersService",
            ),
        )

    def start(self, workers: Workers) -> None:
        """Starts the workers that are on."""
        for leading in self.leading:
            workers.start(leading.worker.feature.value, leading.run())


def build_background(around: Around, settings: BackgroundSettings) -> BackgroundParts:
    """Returns the parts over a migrated database."""
    ch, clock = around.ch, around.clock
    extractions, passes = ExtractionRepository(ch), WorkerPassRepository(ch)
    store = ConversationStore(around.writer)
    work = ExtractionWork(
        around.llm,
        FactExtractor(around.llm, settings.extract_verify_models),
        store,
        extractions,
        ErasureRepository(ch, clock),
        clock,
    )
    worker = ExtractionWorker(
        extractions,
        work,
        Passes(Feature.EXTRACTION_WORKER, clock, around.ledger),
        around.model_calls,
        clock,
        slots=settings.extract_concurrency,
        deadline_s=settings.extract_deadline_s,
        max_attempts=settings.extract_max_attempts,
    )
    extracting = Leading(worker, around.leases, passes, clock)
    synthesis = Synthesis(
        around.llm,
        around.directory,
        AskModels(settings.ask_synth_model, settings.ask_synth_model_cheap, settings.ask_mid_model),
        CachePolicy(settings.ask_llm_cache_default, frozenset(settings.ask_llm_cache_namespaces)),
        timeout_s=settings.ask_timeout_s,
    )
    entities = EntityExtractor(
        EntityRepository(ch),
        passes,
        Naming(around.llm),
        around.embedding,
        Passes(Feature.ENTITY_EXTRACTOR, clock, around.ledger),
        around.model_calls,
        clock,
    )
    wanted = {
        OBSERVATIONS: settings.observe_extract_enabled,
        REFLECTION: settings.reflection_enabled,
        DIGEST: settings.period_digest_enabled,
    }
    workers: list[Worker] = [_repair(around, entities)]
    if settings.entity_extract_enabled:
        workers.append(entities)
    workers += [mining_worker(around, mining) for mining, is_on in wanted.items() if is_on]
    leading = (extracting, *(Leading(one, around.leases, passes, clock) for one in workers))
    return BackgroundParts(
        asking=Asking(around.recall, synthesis, clock, reads_llm_free=settings.reads_llm_free),
        briefing=Briefing(around.recall, synthesis, clock, reads_llm_free=settings.reads_llm_free),
        remembering=Remembering(
            extractions, work, store, clock, deadline_s=settings.extract_deadline_s, queued=extracting.nudge
        ),
        extraction=worker,
        entities=entities,
        background=Background(
            _roster(settings, around.others),
            around.leases,
            passes,
            extractions,
            work,
            ended=around.ended,
            nudge=extracting.nudge,
            clock=clock,
        ),
        leading=leading,
        repeats=around.repeats,
        exposures=around.exposures,
    )


def mining_worker(around: Around, mining: Mining) -> MiningWorker:
    """Returns the worker of one kind of notes."""
    return MiningWorker(
        mining,
        MiningRepository(around.ch),
        EntityRepository(around.ch),
        WorkerPassRepository(around.ch),
        around.llm,
        around.writer,
        Passes(mining.feature, around.clock, around.ledger),
        around.model_calls,
        around.clock,
    )


def _repair(around: Around, extractor: EntityExtractor) -> ProjectionRepair:
    entities = EntityRepository(around.ch)
    return ProjectionRepair(
        entities,
        extractor,
        EntityVectors(entities, around.clock),
        StoredTexts(around.embedding, Feature.PROJECTION_REPAIR, around.clock, around.ledger, around.model_calls),
        WriterHolds(around.model_calls, around.clock),
        around.model_calls,
        around.clock,
    )


def _roster(settings: BackgroundSettings, others: Sequence[Leading]) -> tuple[Roster, ...]:
    return (
        *(Roster(one.worker.feature, lease_name(one.worker.feature), True, one.worker.setting) for one in others),
        Roster(Feature.EMBEDDING_WORKER, EMBEDDING_LEASE),
        Roster(Feature.EXTRACTION_WORKER, lease_name(Feature.EXTRACTION_WORKER)),
        Roster(
            Feature.ENTITY_EXTRACTOR,
            lease_name(Feature.ENTITY_EXTRACTOR),
            settings.entity_extract_enabled,
            "LOOM_ENTITY_EXTRACT_ENABLED",
        ),
        Roster(Feature.PROJECTION_REPAIR, lease_name(Feature.PROJECTION_REPAIR)),
        Roster(
            Feature.OBSERVE_EXTRACT,
            lease_name(Feature.OBSERVE_EXTRACT),
            settings.observe_extract_enabled,
            OBSERVATIONS.setting,
        ),
        Roster(
            Feature.REFLECTION_DISTILL,
            lease_name(Feature.REFLECTION_DISTILL),
            settings.reflection_enabled,
            REFLECTION.setting,
        ),
        Roster(
            Feature.PERIOD_DIGEST, lease_name(Feature.PERIOD_DIGEST), settings.period_digest_enabled, DIGEST.setting
        ),
    )
