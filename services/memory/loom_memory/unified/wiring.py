"""Builds the search over everything and hands its parts to each other."""

from dataclasses import dataclass, field

from loom.memory.v1 import search_pb2_grpc
from loom_common.auth.directory import Directory
from loom_common.server import Service
from loom_memory.app.embedding import EmbeddingPort
from loom_memory.app.thresholds import ThresholdsInForce
from loom_memory.settings import MemorySettings
from loom_memory.unified.api.search import SearchServicer
from loom_memory.unified.app.asking import Asking
from loom_memory.unified.app.ports import (
    Conversations,
    DocumentSearch,
    NoRepositories,
    NoTracker,
    Profiles,
    Repositories,
    Tracker,
)
from loom_memory.unified.app.search import Gates, UnifiedSearch
from loom_memory.wiring_search import SearchParts


@dataclass(frozen=True, slots=True)
class Planes:
    """What is searched beside memories; a tracker or a repository only where one is indexed."""

    documents: DocumentSearch
    profiles: Profiles
    conversations: Conversations
    tracker: Tracker = field(default_factory=NoTracker)
    repositories: Repositories = field(default_factory=NoRepositories)


@dataclass(frozen=True, slots=True)
class UnifiedParts:
    """The use case over every plane."""

    search: UnifiedSearch
    planes: Planes
    thresholds: ThresholdsInForce

    def service(self) -> Service:
        """Returns what is served of it."""
        return Service(
            search_pb2_grpc.add_SearchServiceServicer_to_server,
            SearchServicer(self.search),
            "loom.memory.v1.SearchService",
        )


def build_unified(
    searches: SearchParts,
    planes: Planes,
    embedding: EmbeddingPort,
    thresholds: ThresholdsInForce,
    directory: Directory,
    settings: MemorySettings,
) -> UnifiedParts:
    """Returns the parts over what each plane has built."""
    asking = Asking(
        searches.search,
        planes.documents,
        planes.profiles,
        planes.conversations,
        planes.tracker,
        planes.repositories,
        directory,
    )
    gates = Gates(
        precision_floor=settings.loom_search_precision_floor,
        foreign_margin=settings.loom_search_foreign_margin,
        knowledge_min=settings.loom_search_knowledge_min_similarity,
        profile_min=settings.loom_search_profile_min_similarity,
        floor_mode=settings.loom_search_floor_mode,
    )
    search = UnifiedSearch(asking, searches.namespaces, searches.answering, embedding, thresholds, gates)
    return UnifiedParts(search, planes, thresholds)
