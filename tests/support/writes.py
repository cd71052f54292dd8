"""Memory's write path over a real engine: gates, verdicts, conflicts, and what is known of single memories.

Making the tables takes longer than most tests, so a module shares one database and each test has a namespace.
"""

import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from support.memory import CONCEPTS, NAMELESS, gate_of

from loom_common.auth.directory import FakeDirectory, NamespaceInfo
from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, ClickHouseSettings
from loom_common.clickhouse.embedded import EmbeddedClickHouse
from loom_common.clickhouse.engine import EmbeddedEngine
from loom_common.clock import Clock, SystemClock
from loom_common.errors import LoomError
from loom_common.idempotency import IdempotencyKeys
from loom_common.leases import Lease, Leases
from loom_common.ledger import FakeLedgerSink
from loom_common.migrations import migrate
from loom_common.model_calls.gate import ModelCallGate
from loom_common.write_policy import WritePolicy
from loom_memory.api.repeats import Repeats
from loom_memory.app.classifier import FakeClassifier
from loom_memory.app.drafts import Draft, Outcome, Written
from loom_memory.app.embedding_fake import FakeEmbedding
from loom_memory.app.llm_fake import FakeLlm
from loom_memory.app.read import MemoryReader
from loom_memory.app.statistics import StatisticsCache
from loom_memory.app.thresholds import ThresholdsInForce
from loom_memory.app.thresholds_fake import FakeThresholds
from loom_memory.app.write_versions import WriteVersions
from loom_memory.domain.conflict import Mark
from loom_memory.domain.memory import Content, Identity, Memory, Stated, content_key
from loom_memory.settings import MemorySettings
from loom_memory.store.conflicts import ConflictFilter, ConflictRepository
from loom_memory.store.embeddings import EmbeddingRepository
from loom_memory.store.memories import MemoryRepository
from loom_memory.store.versions import VersionRepository
from loom_memory.wiring_writes import Base, WriteParts, build_resolver, build_writes
from loom_memory.workers.conflicts import ConflictResolver
from loom_memory.workers.leading import Leading

SCOPE = Scope("acme", "team")
_NUMBERS = itertools.count(1)


@dataclass(slots=True)
class Writes:
    """One process's write path, addressed as a caller would."""

    ch: ClickHouse
    parts: WriteParts
    base: Base
    directory: FakeDirectory
    classifier: FakeClassifier
    llm: FakeLlm
    ledger: FakeLedgerSink
    leading: Leading
    scope: Scope = field(default_factory=lambda: SCOPE)

    def allow(self, policy: WritePolicy, **more: object) -> None:
        """Sets what the namespace lets be written."""
        self.directory.add(NamespaceInfo(self.scope.org, self.scope.namespace, write_policy=policy, **more))  # type: ignore[arg-type]  # fields

    def draft(
        self,
        value: str,
        key: str = "",
        *,
        user_id: str = "",
        session_id: str = "",
        expected: int | None = None,
        verbatim: bool = False,
        stated: Stated | None = None,
        **more: object,
    ) -> Draft:
        """Returns a draft; without a key it has the one that is made of its content."""
        content, stated = Content(value, **more), stated or Stated()  # type: ignore[arg-type]  # any field
        identity = Identity(key or content_key(content, stated), user_id, session_id)
        return Draft(identity, content, expected, stated, has_own_key=bool(key), verbatim=verbatim)

    async def set(self, value: str, key: str = "", *, actor: str = "human:ana", **more: object) -> Written:
        return await self.parts.writer.set_one(self.scope, self.draft(value, key, **more), actor)  # type: ignore[arg-type]  # as `draft`

    async def set_many(self, drafts: Sequence[Draft], actor: str = "human:ana") -> list[Outcome]:
        return await self.parts.writer.set_many(self.scope, drafts, actor)

    async def get(self, key: str, user_id: str = "", session_id: str = "") -> Memory | None:
        return await self.base.reader.get(self.scope, Identity(key, user_id, session_id))

    async def held(self, key: str) -> Memory:
        """Returns a memory that is there."""
        found = await self.get(key)
        assert found is not None
        return found

    async def marks(self) -> list[Mark]:
        """Returns the conflicts, newest first."""
        return await ConflictRepository(self.ch).page(self.scope, ConflictFilter(), "", 500)

    async def delete(self, key: str) -> bool:
        return await self.parts.writer.delete(self.scope, Identity(key), "human:ana")

    def elsewhere(self) -> "Writes":
        """Returns the same process, addressed in a namespace that nobody else has; what it asked is forgotten."""
        self.llm.asked.clear()
        self.llm.rule = lambda asked: "{}"
        self.ledger.entries.clear()
        self.classifier.failure = None
        scope = Scope("acme", f"n{next(_NUMBERS)}")
        self.directory.add(NamespaceInfo(scope.org, scope.namespace))
        return replace(self, scope=scope)

    async def alone(self) -> None:
        """Forgets the conflicts of every namespace: the resolver works through all of them."""
        await self.ch.command("TRUNCATE TABLE memory_conflicts")

    async def judge(self) -> dict[str, int]:
        """Runs one pass of the resolver."""
        done = await self.leading.turn()
        return dict(done or {})

    async def lease(self) -> Lease:
        lease = await Leases(self.ch, "memory").acquire("test", 60)
        assert lease is not None
        return lease


async def writes_over(
    ch: ClickHouse,
    *,
    embedding: FakeEmbedding | None = None,
    clock: Clock | None = None,
    settings: MemorySettings | None = None,
    llm: FakeLlm | None = None,
    model_calls: ModelCallGate | None = None,
) -> Writes:
    """Returns the write path over `ch`, its tables made."""
    await migrate(ch, "memory", "loom_memory")
    clock = clock or SystemClock()
    embedding = embedding or FakeEmbedding(CONCEPTS, dim=256)
    settings = settings or MemorySettings()
    directory = FakeDirectory([NamespaceInfo(SCOPE.org, SCOPE.namespace)])
    memories, versions, embeddings = MemoryRepository(ch), VersionRepository(ch), EmbeddingRepository(ch)
    numbers = WriteVersions(clock)
    base = Base(
        ch=ch,
        memories=memories,
        versions=versions,
        embeddings=embeddings,
        embedding=embedding,
        thresholds=ThresholdsInForce(FakeThresholds(), settings, clock),
        directory=directory,
        reader=MemoryReader(memories, versions, clock=clock, numbers=numbers),
        clock=clock,
        numbers=numbers,
        statistics=StatisticsCache(memories, clock),
        stubbed=lambda scope: None,
        deleted=lambda scope, identity, version: None,
        repeats=Repeats(IdempotencyKeys(ch, "memory", clock)),
        service="memory",
    )
    classifier, llm, ledger = FakeClassifier(), llm or FakeLlm(), FakeLedgerSink()
    parts = build_writes(base, classifier)
    leading = build_resolver(base, parts, llm, ledger, model_calls or gate_of(NAMELESS), Leases(ch, "memory"), settings)
    return Writes(ch, parts, base, directory, classifier, llm, ledger, leading)


def stored(outcomes: Sequence[Outcome]) -> list[Written]:
    """Returns outcomes, none of which may be an error."""
    found = []
    for outcome in outcomes:
        if isinstance(outcome, LoomError):
            raise outcome
        found.append(outcome)
    return found


def resolver_of(writes: Writes) -> ConflictResolver:
    """Returns the worker."""
    worker = writes.leading.worker
    assert isinstance(worker, ConflictResolver)
    return worker


@asynccontextmanager
async def module_writes(engine: EmbeddedEngine, **more: object) -> AsyncIterator[Writes]:
    """Gives the write path over a database of its own, which a module's tests share."""
    name = f"writes_{next(_NUMBERS)}"
    ch = EmbeddedClickHouse(engine, name, ClickHouseSettings(pool_size=2))
    await ch.start()
    try:
        yield await writes_over(ch, **more)  # type: ignore[arg-type]  # as there
    finally:
        await ch.close()
        handle = engine.open_handle()
        handle.execute(f"DROP DATABASE IF EXISTS `{name}` SYNC")
        handle.close()
