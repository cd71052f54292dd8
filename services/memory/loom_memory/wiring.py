"""Builds memory and hands its parts to each other."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from loom.memory.v1 import maintenance_pb2_grpc, memory_pb2_grpc
from loom_common.auth.directory import Directory
from loom_common.clickhouse import ClickHouse
from loom_common.clock import Clock, SystemClock
from loom_common.features import Feature
from loom_common.idempotency import IdempotencyKeys
from loom_common.leases import Leases
from loom_common.ledger import LedgerSink
from loom_common.migrations import migrate
from loom_common.model_calls.gate import ModelCallGate
from loom_common.peers import open_peers
from loom_common.server import RunningServer, Service, ServiceSpec, serving
from loom_common.settings import Service as ServiceName
from loom_common.workers import Workers
from loom_memory.api.maintenance import MaintenanceServicer
from loom_memory.api.memory import MemoryServicer
from loom_memory.api.repeats import Repeats
from loom_memory.app.classifier import ClassifierPort, GrpcClassifier
from loom_memory.app.embedding import EmbeddingPort
from loom_memory.app.embedding_grpc import GrpcEmbedding, QueryBound
from loom_memory.app.entities.leg import StoredEntities
from loom_memory.app.erasure.peers import ErasurePeer, GrpcPeer
from loom_memory.app.llm import LlmPort
from loom_memory.app.llm_absent import AbsentLlm
from loom_memory.app.llm_grpc import GrpcLlm
from loom_memory.app.pending import PendingVectors
from loom_memory.app.read import MemoryReader
from loom_memory.app.reembedding import Reembedding
from loom_memory.app.search import MemorySearch
from loom_memory.app.statistics import StatisticsCache
from loom_memory.app.status import MemoryStatus
from loom_memory.app.thresholds import ThresholdsInForce, ThresholdsPort
from loom_memory.app.thresholds_grpc import GrpcThresholds
from loom_memory.app.write import MemoryWriter
from loom_memory.app.write_versions import WriteVersions
from loom_memory.context.app.planes import ProcedureSource, ProfileSource
from loom_memory.context.app.sessions import RunSource, WorkingMemorySource
from loom_memory.context.app.turns import RecalledTurns
from loom_memory.context.wiring import ContextParts, build_context
from loom_memory.conversations.app.unified import ConversationLeg
from loom_memory.conversations.wiring import ConversationParts, build_conversations
from loom_memory.guides.wiring import GuideParts, build_guides
from loom_memory.inventory.wiring import inventory_service
from loom_memory.knowledge.wiring import KnowledgeParts, build_knowledge
from loom_memory.procedures.wiring import ProcedureParts, build_procedures
from loom_memory.profiles.app.unified import ProfileLeg
from loom_memory.profiles.wiring import ProfileParts, build_profiles
from loom_memory.sessions.wiring import SessionParts, build_sessions
from loom_memory.settings import MemorySettings
from loom_memory.store.entities import EntityRepository
from loom_memory.store.tier_rows import TierRows
from loom_memory.store.versions import VersionRepository
from loom_memory.tier.cache import NAME as TIER
from loom_memory.tier.cache import Tier
from loom_memory.tier.repositories import TieredEmbeddings, TieredLegs, TieredMemories, TieredRewrites
from loom_memory.tier.watching import HARMLESS, WatchedClickHouse
from loom_memory.unified.app.once import OnceEmbedding
from loom_memory.unified.wiring import Planes, UnifiedParts, build_unified
from loom_memory.wiring_background import Around, BackgroundParts, build_background
from loom_memory.wiring_bulk import BulkParts, Core, build_bulk
from loom_memory.wiring_embedding import build_embedding_worker, build_reembedding
from loom_memory.wiring_search import SearchBase, SearchParts, build_search
from loom_memory.wiring_writes import Base, WriteParts, build_resolver, build_writes
from loom_memory.workers.deletions import DeletionMarker
from loom_memory.workers.embedding import NAME as EMBEDDING_WORKER
from loom_memory.workers.embedding import EmbeddingWorker
from loom_memory.workers.erasure import NAME as ERASURE
from loom_memory.workers.leading import Leading
from loom_memory.workers.purge import NAME as PURGE
from loom_memory.workers.sweep import Sweep

NAME = "memory"
PACKAGE = "loom_memory"


@dataclass(frozen=True, slots=True)
class MemoryParts:
    """The use cases and workers over one database."""

    writer: MemoryWriter
    reader: MemoryReader
    search: MemorySearch
    unified: UnifiedParts
    searches: SearchParts
    workers: Workers
    deletions: DeletionMarker
    sweep: Sweep
    reembedding: Reembedding
    embedding_worker: EmbeddingWorker
    repeats: Repeats
    tier: Tier
    bulk: BulkParts
    writes: WriteParts
    resolver: Leading | None
    background: BackgroundParts | None
    knowledge: KnowledgeParts
    guides: GuideParts
    context: ContextParts
    profiles: ProfileParts
    procedures: ProcedureParts
    conversations: ConversationParts
    sessions: SessionParts
    inventory: Service

    def services(self) -> tuple[Service, ...]:
        """Returns what memory serves."""
        return (
            Service(
                memory_pb2_grpc.add_MemoryServiceServicer_to_server,
                MemoryServicer(
                    self.writer,
                    self.reader,
                    self.searches.answering,
                    self.searches.exposures,
                    self.writes.restorer,
                    self.writes.inspector,
                    self.repeats,
                ),
                "loom.memory.v1.MemoryService",
            ),
            Service(
                maintenance_pb2_grpc.add_MaintenanceServiceServicer_to_server,
                MaintenanceServicer(self.reembedding),
                "loom.memory.v1.MaintenanceService",
            ),
            *self.searches.services(),
            *self.writes.services(),
            *self.bulk.services(),
            self.knowledge.service(),
            self.unified.service(),
            self.guides.service(),
            self.context.service(),
            self.profiles.service(),
            self.procedures.service(),
            self.conversations.service(),
            self.sessions.service(),
            self.inventory,
            *(self.background.services() if self.background is not None else ()),
        )


def build_parts(
    ch: ClickHouse,
    embedding: EmbeddingPort,
    thresholds: ThresholdsPort,
    directory: Directory,
    ledger: LedgerSink,
    model_calls: ModelCallGate,
    settings: MemorySettings,
    clock: Clock | None = None,
    peers: Sequence[ErasurePeer] = (),
    llm: LlmPort | None = None,
    classifier: ClassifierPort | None = None,
) -> MemoryParts:
    """Returns the parts over a migrated database."""
    clock = clock or SystemClock()
    embedding = OnceEmbedding(embedding)
    tier = Tier(TierRows(ch), clock, max_bytes=settings.tier_max_mb << 20, exclusive=ch.exclusive)
    # From here on everything that is written passes the tier.
    ch = WatchedClickHouse(ch, tier, HARMLESS)
    memories, versions, embeddings = TieredMemories(ch, tier), VersionRepository(ch), TieredEmbeddings(ch, tier)
    numbers = WriteVersions(clock)
    statistics = StatisticsCache(memories, clock)
    workers = Workers()
    deletions = DeletionMarker(versions, workers, clock)
    pending = PendingVectors(TieredRewrites(ch, tier), clock)
    leases = Leases(ch, NAME)
    in_force = ThresholdsInForce(thresholds, settings, clock)
    searches = build_search(
        SearchBase(
            ch=ch,
            rows=memories,
            vectors=embeddings,
            legs=TieredLegs(ch, tier),
            embedding=embedding,
            thresholds=in_force,
            llm=llm or AbsentLlm(),
            entities=StoredEntities(EntityRepository(ch)),
            directory=directory,
            ledger=ledger,
            clock=clock,
            numbers=numbers,
            statistics=statistics,
            pending=pending,
            workers=workers,
        ),
        settings,
    )
    search = searches.search
    reader = MemoryReader(memories, versions, clock=clock, numbers=numbers)
    repeats = Repeats(IdempotencyKeys(ch, NAME, clock))
    base = Base(
        ch=ch,
        memories=memories,
        versions=versions,
        embeddings=embeddings,
        embedding=embedding,
        thresholds=in_force,
        directory=directory,
        reader=reader,
        clock=clock,
        numbers=numbers,
        statistics=statistics,
        stubbed=pending.stubbed,
        deleted=deletions.add,
        repeats=repeats,
        service=NAME,
    )
    writes = build_writes(base, classifier)
    core = Core(
        ch=ch,
        memories=memories,
        versions=versions,
        embeddings=embeddings,
        embedding=embedding,
        writer=writes.writer,
        commits=writes.commits,
        gates=writes.gates,
        clock=clock,
        numbers=numbers,
        statistics=statistics,
        stubbed=pending.stubbed,
        leases=leases,
    )
    resolver = None if llm is None else build_resolver(base, writes, llm, ledger, model_calls, leases, settings)
    profiles = build_profiles(ch, embedding, in_force, llm, ledger, model_calls, settings, clock, repeats)
    procedures = build_procedures(ch, profiles.vectors, embedding, in_force, clock, repeats)
    conversations = build_conversations(
        ch, profiles.vectors, embedding, in_force, llm, ledger, model_calls, settings, clock, repeats
    )
    sessions = build_sessions(ch, llm, settings, clock, repeats)
    background = None
    if llm is not None:
        around = Around(
            ch=ch,
            recall=search,
            writer=writes.writer,
            embedding=embedding,
            llm=llm,
            directory=directory,
            ledger=ledger,
            model_calls=model_calls,
            leases=leases,
            repeats=repeats,
            exposures=searches.exposures,
            clock=clock,
            ended=lambda: workers.ended,
            others=(*(() if resolver is None else (resolver,)), *profiles.folds, *conversations.titles),
        )
        background = build_background(around, settings)
    knowledge = build_knowledge(
        ch, embedding, in_force, llm or AbsentLlm(), ledger, model_calls, workers, settings, clock, repeats
    )
    guides = build_guides(ch, embedding, pending, workers, settings, clock)
    planes = Planes(knowledge.search, ProfileLeg(profiles.match), ConversationLeg(conversations.search))
    unified = build_unified(searches, planes, embedding, in_force, directory, settings)
    return MemoryParts(
        writer=writes.writer,
        reader=reader,
        search=search,
        unified=unified,
        searches=searches,
        workers=workers,
        deletions=deletions,
        sweep=Sweep(versions, embeddings, leases, clock, interval_s=settings.sweep_interval_s),
        reembedding=build_reembedding(ch, embedding, ledger, model_calls, leases, clock, settings.identifying),
        embedding_worker=build_embedding_worker(ch, embedding, ledger, model_calls, leases, clock),
        repeats=repeats,
        tier=tier,
        bulk=build_bulk(core, settings, peers),
        writes=writes,
        resolver=resolver,
        background=background,
        knowledge=knowledge,
        guides=guides,
        context=build_context(
            ch,
            memories,
            search,
            reader,
            knowledge.search,
            guides,
            settings,
            clock,
            (
                ProfileSource(profiles.sections),
                ProcedureSource(procedures.match),
                RecalledTurns(conversations.search),
                WorkingMemorySource(sessions.working),
                RunSource(sessions.runs),
            ),
        ),
        profiles=profiles,
        procedures=procedures,
        conversations=conversations,
        sessions=sessions,
        inventory=inventory_service(ch, clock, recorded=settings.exposure_ledger_enabled),
    )


@asynccontextmanager
async def open_service(settings: MemorySettings, ch: ClickHouse) -> AsyncIterator[RunningServer]:
    """Serves `loom.memory.v1` over `ch` until it is left.

    Raises:
        SettingsError: A key file cannot be used.
        ListenError: The address is taken.
    """
    await migrate(ch, NAME, PACKAGE)
    async with AsyncExitStack() as stack:
        peers = await stack.enter_async_context(open_peers(settings, NAME))
        channel = peers.channel(settings.embedding_addr)
        embedding = GrpcEmbedding(channel, QueryBound(settings.embed_bound_s, settings.embed_bound_retries))
        llm_channel = peers.channel(settings.llm_addr)
        model_calls = peers.model_calls(settings)
        parts = build_parts(
            ch,
            embedding,
            GrpcThresholds(channel),
            peers.directory,
            peers.ledger,
            model_calls,
            settings,
            peers=[
                GrpcPeer(name.value, peers.channel(settings.addr_of(name)))
                for name in ServiceName
                if name is not ServiceName.MEMORY
            ],
            llm=GrpcLlm(llm_channel),
            classifier=GrpcClassifier(llm_channel),
        )
        stack.push_async_callback(parts.deletions.close)
        stack.push_async_callback(parts.knowledge.leftovers.close)
        stack.push_async_callback(parts.searches.close)
        stack.push_async_callback(parts.workers.close)
        status = MemoryStatus(
            ch, embedding, lambda: parts.workers.ended, lambda: parts.embedding_worker.waiting, parts.tier.facts
        )
        parts.workers.start("learn_model", status.learn_model())
        parts.workers.start(TIER, parts.tier.run())
        parts.workers.start("sweep", parts.sweep.run())
        parts.workers.start(PURGE, parts.bulk.purge.run())
        parts.workers.start(ERASURE, parts.bulk.erasure_worker.run())
        if parts.resolver is not None:
            parts.workers.start(Feature.CONFLICT_RESOLVER.value, parts.resolver.run())
        parts.workers.start(EMBEDDING_WORKER, parts.embedding_worker.run())
        for name, work in parts.searches.work():
            parts.workers.start(name, work)
        parts.knowledge.start(parts.workers)
        parts.profiles.start(parts.workers)
        for titling in parts.conversations.titles:
            parts.workers.start(titling.worker.feature.value, titling.run())
        if parts.background is not None:
            parts.background.start(parts.workers)
        spec = ServiceSpec(NAME, settings.memory_listen, parts.services(), status)
        yield await stack.enter_async_context(serving(spec, settings, peers.deps))
