"""Builds guides, health and mentor and hands their parts to each other."""

from dataclasses import dataclass

from loom.memory.v1 import guide_pb2_grpc
from loom_common.clickhouse import ClickHouse
from loom_common.clock import Clock
from loom_common.conditional_writes import Claims
from loom_common.server import Service
from loom_common.workers import Workers
from loom_memory.app.embedding import EmbeddingPort
from loom_memory.app.pending import PendingVectors
from loom_memory.guides.api.guide import GuideServicer
from loom_memory.guides.app.guides import Guides
from loom_memory.guides.app.health import Health, MissingVectors
from loom_memory.guides.app.mentor import Mentor
from loom_memory.guides.store.facts import NamespaceFacts
from loom_memory.guides.store.guides import GuideRepository
from loom_memory.guides.store.snapshots import SnapshotRepository
from loom_memory.settings import MemorySettings

_NAME = "memory"


@dataclass(frozen=True, slots=True)
class GuideParts:
    """The use cases over one database."""

    guides: Guides
    health: Health
    mentor: Mentor

    def service(self) -> Service:
        """Returns what is served."""
        return Service(
            guide_pb2_grpc.add_GuideServiceServicer_to_server,
            GuideServicer(self.guides, self.health, self.mentor),
            "loom.memory.v1.GuideService",
        )


def build_guides(
    ch: ClickHouse,
    embedding: EmbeddingPort,
    pending: PendingVectors,
    workers: Workers,
    settings: MemorySettings,
    clock: Clock,
) -> GuideParts:
    """Returns the parts over a migrated database."""
    claims = None if ch.exclusive else Claims(ch, _NAME)
    facts, snapshots, missing = NamespaceFacts(ch), SnapshotRepository(ch), MissingVectors(embedding, pending)
    recorded = settings.exposure_ledger_enabled
    return GuideParts(
        Guides(GuideRepository(ch), clock, claims),
        Health(
            facts, missing, snapshots, clock, workers, claims, ttl_s=settings.namespace_health_ttl_s, recorded=recorded
        ),
        Mentor(facts, missing, snapshots, clock, workers, claims, ttl_s=settings.mentor_ttl_s, recorded=recorded),
    )
