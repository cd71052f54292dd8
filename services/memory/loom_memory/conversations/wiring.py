"""Builds the plane of conversations and hands its parts to each other."""

from collections.abc import Sequence
from dataclasses import dataclass

from loom.memory.v1 import conversation_pb2_grpc
from loom_common.clickhouse import ClickHouse
from loom_common.clock import Clock
from loom_common.conditional_writes import Claims
from loom_common.leases import Leases
from loom_common.ledger import LedgerSink
from loom_common.model_calls.gate import ModelCallGate
from loom_common.server import Service
from loom_memory.api.repeats import Repeats
from loom_memory.app.embedding import EmbeddingPort
from loom_memory.app.item_vectors import ItemVectors
from loom_memory.app.llm import LlmPort
from loom_memory.app.passes import Passes
from loom_memory.app.thresholds import ThresholdsInForce
from loom_memory.conversations.api.conversation import ConversationServicer
from loom_memory.conversations.app.conversations import Conversations
from loom_memory.conversations.app.search import ConversationSearch
from loom_memory.conversations.app.titles import Titles
from loom_memory.conversations.store.conversations import ConversationRepository
from loom_memory.conversations.store.sources import MadeOfConversations
from loom_memory.settings import MemorySettings
from loom_memory.store.worker_passes import WorkerPassRepository
from loom_memory.workers.leading import Leading

_NAME = "memory"


@dataclass(frozen=True, slots=True)
class ConversationParts:
    """The use cases and workers of the plane over one database."""

    conversations: Conversations
    search: ConversationSearch
    repeats: Repeats
    titles: Sequence[Leading]

    def service(self) -> Service:
        """Returns what the plane serves."""
        return Service(
            conversation_pb2_grpc.add_ConversationServiceServicer_to_server,
            ConversationServicer(self.conversations, self.search, self.repeats),
            "loom.memory.v1.ConversationService",
        )


def build_conversations(
    ch: ClickHouse,
    vectors: ItemVectors,
    embedding: EmbeddingPort,
    thresholds: ThresholdsInForce,
    llm: LlmPort | None,
    ledger: LedgerSink,
    model_calls: ModelCallGate,
    settings: MemorySettings,
    clock: Clock,
    repeats: Repeats,
) -> ConversationParts:
    """Returns the parts over a migrated database."""
    rows = ConversationRepository(ch)
    conversations = Conversations(
        rows, MadeOfConversations(ch), vectors, clock, None if ch.exclusive else Claims(ch, _NAME)
    )
    search = ConversationSearch(rows, vectors, embedding, thresholds, settings.conversation_search_min_similarity)
    titles: list[Leading] = []
    if llm is not None and settings.conversation_titles_enabled:
        worker = Titles(rows, conversations, llm, Passes(Titles.feature, clock, ledger), model_calls, clock)
        titles.append(Leading(worker, Leases(ch, _NAME), WorkerPassRepository(ch), clock))
    return ConversationParts(conversations, search, repeats, titles)
