"""Builds the profile plane and hands its parts to each other."""

from collections.abc import Sequence
from dataclasses import dataclass

from loom.memory.v1 import profile_pb2_grpc
from loom_common.clickhouse import ClickHouse
from loom_common.clock import Clock
from loom_common.conditional_writes import Claims
from loom_common.features import Feature
from loom_common.leases import Leases
from loom_common.ledger import LedgerSink
from loom_common.model_calls.gate import ModelCallGate
from loom_common.server import Service
from loom_common.workers import Workers
from loom_memory.api.repeats import Repeats
from loom_memory.app.batches import StoredTexts
from loom_memory.app.embedding import EmbeddingPort
from loom_memory.app.holds import WriterHolds
from loom_memory.app.item_vectors import ItemVectors
from loom_memory.app.llm import LlmPort
from loom_memory.app.passes import Passes
from loom_memory.app.thresholds import ThresholdsInForce
from loom_memory.knowledge.app.upkeep import MissingVectors
from loom_memory.profiles.api.profile import ProfileServicer
from loom_memory.profiles.app.folding import Folding, ProfileFolds
from loom_memory.profiles.app.match import ProfileMatch
from loom_memory.profiles.app.schemas import ProfileSchemas
from loom_memory.profiles.app.sections import ProfileSections
from loom_memory.profiles.store.schemas import SchemaRepository
from loom_memory.profiles.store.sections import SectionRepository
from loom_memory.profiles.store.sources import FoldSourceRepository
from loom_memory.settings import MemorySettings
from loom_memory.store.entities import EntityRepository
from loom_memory.store.item_vectors import ItemVectorRepository
from loom_memory.store.worker_passes import WorkerPassRepository
from loom_memory.workers.leading import Leading

_NAME = "memory"
EMBEDDING = Feature.ITEM_EMBEDDING.value


@dataclass(frozen=True, slots=True)
class ProfileParts:
    """The use cases and workers of the plane over one database."""

    sections: ProfileSections
    schemas: ProfileSchemas
    match: ProfileMatch
    vectors: ItemVectors
    missing_vectors: MissingVectors
    folds: tuple[Leading, ...]
    repeats: Repeats

    def service(self) -> Service:
        """Returns what the plane serves."""
        return Service(
            profile_pb2_grpc.add_ProfileServiceServicer_to_server,
            ProfileServicer(self.sections, self.schemas, self.repeats),
            "loom.memory.v1.ProfileService",
        )

    def start(self, workers: Workers) -> None:
        """Starts what runs beside the calls."""
        workers.start(EMBEDDING, self.missing_vectors.run())
        for fold in self.folds:
            workers.start(fold.worker.feature.value, fold.run())


def item_vectors(ch: ClickHouse, embedding: EmbeddingPort, clock: Clock) -> ItemVectors:
    """Returns the vectors of sections and procedures as a change of the embedder sees them."""
    return ItemVectors(ItemVectorRepository(ch), embedding, clock, lambda _scope: None)


def build_profiles(
    ch: ClickHouse,
    embedding: EmbeddingPort,
    thresholds: ThresholdsInForce,
    llm: LlmPort | None,
    ledger: LedgerSink,
    model_calls: ModelCallGate,
    settings: MemorySettings,
    clock: Clock,
    repeats: Repeats,
) -> ProfileParts:
    """Returns the parts over a migrated database."""
    claims = None if ch.exclusive else Claims(ch, _NAME)
    leases, rows = Leases(ch, _NAME), ItemVectorRepository(ch)
    texts = StoredTexts(embedding, EMBEDDING, clock, ledger, model_calls)
    missing = MissingVectors(
        ItemVectors(rows, embedding, clock, lambda _scope: None), texts, WriterHolds(model_calls, clock), leases, clock
    )
    vectors = ItemVectors(rows, embedding, clock, missing.notice)
    sections, schema_rows = SectionRepository(ch), SchemaRepository(ch)
    schemas = ProfileSchemas(schema_rows, clock, claims)
    profiles = ProfileSections(sections, schemas, vectors, clock, claims)
    match = ProfileMatch(sections, vectors, embedding, thresholds, settings.loom_search_profile_min_similarity)
    passes = WorkerPassRepository(ch)
    folds = tuple(
        Leading(
            ProfileFolds(
                folding,
                FoldSourceRepository(ch),
                EntityRepository(ch),
                schema_rows,
                schemas,
                profiles,
                passes,
                llm,
                Passes(folding.feature, clock, ledger),
                model_calls,
                clock,
            ),
            leases,
            passes,
            clock,
        )
        for folding in foldings(settings)
        if llm is not None
    )
    return ProfileParts(profiles, schemas, match, vectors, missing, folds, repeats)


def foldings(settings: MemorySettings) -> Sequence[Folding]:
    """Returns the folds that are on."""
    found = []
    if settings.structured_profile_enabled:
        setting = "LOOM_STRUCTURED_PROFILE_ENABLED"
        found.append(Folding(Feature.STRUCTURED_PROFILE, setting, True, settings.structured_profile_model))
    if settings.profile_consolidation_enabled:
        found.append(Folding(Feature.PROFILE_CONSOLIDATION, "LOOM_PROFILE_CONSOLIDATION_ENABLED", False))
    return found
