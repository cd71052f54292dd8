"""Builds context packs and parked texts and hands their parts to each other."""

from collections.abc import Sequence
from dataclasses import dataclass

from loom.memory.v1 import context_pb2_grpc
from loom_common.clickhouse import ClickHouse
from loom_common.clock import Clock
from loom_common.server import Service
from loom_memory.app.read import MemoryReader
from loom_memory.app.search import MemorySearch
from loom_memory.app.search.ports import MemoryRows
from loom_memory.context.api.context import ContextServicer
from loom_memory.context.app.blobs import Blobs
from loom_memory.context.app.documents import RecalledDocuments
from loom_memory.context.app.o200k import O200kTokens
from loom_memory.context.app.packing import ContextPacker
from loom_memory.context.app.ports import Source
from loom_memory.context.app.recall import MemoryStack, RecalledMemories
from loom_memory.context.app.surroundings import HealthSection, MentorSection, NamespaceGuideSection
from loom_memory.context.store.blobs import BlobRepository
from loom_memory.context.store.stack import PinnedIdentities
from loom_memory.guides.wiring import GuideParts
from loom_memory.knowledge.app.search import KnowledgeSearch
from loom_memory.settings import MemorySettings


@dataclass(frozen=True, slots=True)
class ContextParts:
    """The use cases over one database."""

    packer: ContextPacker
    blobs: Blobs

    def service(self) -> Service:
        """Returns what is served."""
        return Service(
            context_pb2_grpc.add_ContextServiceServicer_to_server,
            ContextServicer(self.packer, self.blobs),
            "loom.memory.v1.ContextService",
        )


def build_context(
    ch: ClickHouse,
    rows: MemoryRows,
    search: MemorySearch,
    reader: MemoryReader,
    knowledge: KnowledgeSearch,
    guides: GuideParts,
    settings: MemorySettings,
    clock: Clock,
    planes: Sequence[Source] = (),
) -> ContextParts:
    """Returns the parts over a migrated database; `planes` read the sections of the planes beside these."""
    sources: list[Source] = [
        HealthSection(guides.health),
        NamespaceGuideSection(guides.guides),
        MentorSection(guides.mentor),
        MemoryStack(PinnedIdentities(ch), rows, clock),
        RecalledMemories(search, reader),
        RecalledDocuments(knowledge),
        *planes,
    ]
    return ContextParts(
        ContextPacker(sources, O200kTokens()),
        Blobs(BlobRepository(ch), clock, max_bytes=settings.context_offload_max_bytes),
    )
