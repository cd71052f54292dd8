"""What moves and removes memories in bulk, over a real engine and a deterministic embedder."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from support.memory import CONCEPTS

from loom_common.auth.directory import FakeDirectory, NamespaceInfo
from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse
from loom_common.clock import Clock, SystemClock
from loom_common.conditional_writes import Claims
from loom_common.leases import Leases
from loom_common.migrations import migrate
from loom_common.write_policy import Treatment, WritePolicy
from loom_memory.app.bulk import BulkPolicy
from loom_memory.app.commit import Commits
from loom_memory.app.drafts import Draft, Written
from loom_memory.app.embedding import EmbeddingPort
from loom_memory.app.embedding_fake import FakeEmbedding
from loom_memory.app.erasure.peers import ErasurePeer
from loom_memory.app.export import ExportQuery
from loom_memory.app.importing import LineOutcome
from loom_memory.app.pending import PendingVectors
from loom_memory.app.read import MemoryReader
from loom_memory.app.statistics import StatisticsCache
from loom_memory.app.text_gates import TextGates
from loom_memory.app.thresholds import ThresholdsInForce
from loom_memory.app.thresholds_fake import FakeThresholds
from loom_memory.app.validity import Validity
from loom_memory.app.verdicts import Verdictgiver
from loom_memory.app.write import MemoryWriter
from loom_memory.app.write_versions import WriteVersions
from loom_memory.domain.memory import Content, Filter, Identity, Memory
from loom_memory.settings import MemorySettings
from loom_memory.store.conflicts import ConflictRepository
from loom_memory.store.copies import VersionVectors
from loom_memory.store.embeddings import EmbeddingRepository
from loom_memory.store.memories import MemoryRepository
from loom_memory.store.rewrites import VectorRewrites
from loom_memory.store.signals import SignalRepository
from loom_memory.store.versions import VersionRepository
from loom_memory.wiring_bulk import BulkParts, Core, build_bulk

PLAIN = WritePolicy(personal=Treatment.OFF, secrets=Treatment.OFF, duplicates=False, conflicts=False)
_NUMBERS = itertools.count(1)
ADMIN = BulkPolicy("human:admin", keeps_provenance=True)


class Namespaces(FakeDirectory):
    """Knows every namespace, each with one policy."""

    def __init__(self, policy: WritePolicy) -> None:
        super().__init__()
        self._policy = policy

    async def namespace_info(self, org: str, namespace: str) -> NamespaceInfo | None:
        """See `Directory.namespace_info`."""
        return NamespaceInfo(org, namespace, write_policy=self._policy)


@dataclass(slots=True)
class BulkHarness:
    """One process that writes, exports, imports and erases.

    Attributes:
        scope: Where what is exported and erased lies.
        other: Where it is imported, in the same organisation.
        foreign: A namespace of the same name in another organisation.
    """

    ch: ClickHouse
    core: Core
    parts: BulkParts
    reader: MemoryReader
    embedding: EmbeddingPort
    scope: Scope
    other: Scope
    foreign: Scope

    def fresh(self) -> "BulkHarness":
        """Returns the same on namespaces that nobody used before."""
        number = next(_NUMBERS)
        org = f"acme{number}"
        return replace(
            self, scope=Scope(org, "team"), other=Scope(org, "home"), foreign=Scope(f"other{number}", "team")
        )

    async def set(
        self,
        key: str,
        value: str,
        *,
        user_id: str = "",
        session_id: str = "",
        scope: Scope | None = None,
        **more: Any,  # any field of Content
    ) -> Written:
        """Stores one memory."""
        draft = Draft(Identity(key, user_id, session_id), Content(value, **more))
        return await self.core.writer.set_one(scope or self.scope, draft, "human:test")

    async def get(self, key: str, user_id: str = "", session_id: str = "", scope: Scope | None = None) -> Memory | None:
        """Reads one memory."""
        return await self.reader.get(scope or self.scope, Identity(key, user_id, session_id))

    async def history(self, key: str, user_id: str = "", scope: Scope | None = None) -> list[Memory]:
        """Returns the versions of a memory, newest first."""
        page = await self.reader.history(scope or self.scope, Identity(key, user_id), page_size=100, page_token="")
        return page.memories

    async def export(self, scope: Scope | None = None, **more: Any) -> list[bytes]:  # any field of ExportQuery
        """Returns the lines of a whole export, vectors and versions included."""
        query = ExportQuery(**{"wanted": Filter(), "with_vectors": True, "with_versions": True, **more})
        return [line async for part in self.parts.export.run(scope or self.scope, query) for line in part.lines]

    async def load(
        self, lines: Sequence[bytes], *, scope: Scope | None = None, policy: BulkPolicy = ADMIN, batch: int = 100
    ) -> list[LineOutcome]:
        """Imports lines and returns what became of each."""

        async def batches() -> AsyncIterator[Sequence[bytes]]:
            for first in range(0, len(lines), batch):
                yield lines[first : first + batch]

        imported = self.parts.imports.run(scope or self.other, batches(), policy, lambda identity: identity)
        return [outcome async for part in imported for outcome in part]

    async def delete(self, key: str, user_id: str = "") -> None:
        """Deletes one memory."""
        await self.core.writer.delete(self.scope, Identity(key, user_id), "human:test")

    async def count(self, table: str, where: str = "1") -> int:
        """Counts rows of a table, replaced ones included."""
        return int((await self.ch.query(f"SELECT count() FROM {table} WHERE {where}")).scalar())  # a test's own

    async def finish_erasures(self, *, limit_s: float = 30.0) -> None:
        """Works until no erasure waits any more, for its files to go either."""
        async with asyncio.timeout(limit_s):
            while await self.parts.erasure_worker.work():  # noqa: ASYNC110  (files go when the engine lets them)
                await asyncio.sleep(0.1)

    async def hurry_files(self) -> None:
        """Lets files that were replaced go at once, which otherwise stay for a minute."""
        hurried = "old_parts_lifetime = 0, cleanup_delay_period = 0, max_cleanup_delay_period = 1"
        tables = await self.ch.query("SELECT name FROM system.tables WHERE database = currentDatabase() ORDER BY name")
        for (name,) in tables:
            await self.ch.command(f"ALTER TABLE `{name}` MODIFY SETTING {hurried}")


async def bulk_over(
    ch: ClickHouse,
    *,
    embedding: EmbeddingPort | None = None,
    clock: Clock | None = None,
    peers: Sequence[ErasurePeer] = (),
    settings: MemorySettings | None = None,
    policy: WritePolicy | None = None,
    claims: Claims | None = None,
    exclusive: bool = True,
) -> BulkHarness:
    """Returns what one process does in bulk over `ch`, its tables made, replaced files gone in a second."""
    await migrate(ch, "memory", "loom_memory")
    embedding = embedding or FakeEmbedding(CONCEPTS, dim=32)
    clock = clock or SystemClock()
    settings = settings or MemorySettings()
    memories, versions, embeddings = MemoryRepository(ch), VersionRepository(ch), EmbeddingRepository(ch)
    numbers = WriteVersions(clock)
    statistics = StatisticsCache(memories, clock)
    pending = PendingVectors(VectorRewrites(ch), clock)
    conflicts = ConflictRepository(ch)
    commits = Commits(
        memories, versions, embeddings, embedding, conflicts,
        clock=clock, statistics=statistics, stubbed=pending.stubbed, claims=claims,
    )  # fmt: skip
    gates = TextGates(Namespaces(policy or PLAIN), None, clock)
    thresholds = ThresholdsInForce(FakeThresholds(), settings, clock)
    writer = MemoryWriter(
        commits,
        memories,
        embedding,
        gates,
        Verdictgiver(memories, embeddings, embedding, thresholds),
        Validity(commits, memories, VersionVectors(ch), conflicts, embedding, clock=clock, numbers=numbers),
        SignalRepository(ch),
        clock=clock,
        numbers=numbers,
        statistics=statistics,
        deleted=lambda scope, identity, version: None,
    )
    core = Core(
        ch=ch,
        memories=memories,
        versions=versions,
        embeddings=embeddings,
        embedding=embedding,
        writer=writer,
        commits=commits,
        gates=gates,
        clock=clock,
        numbers=numbers,
        statistics=statistics,
        stubbed=pending.stubbed,
        leases=Leases(ch, "memory"),
    )
    parts = build_bulk(core, settings, peers, is_exclusive=exclusive)
    reader = MemoryReader(memories, versions, clock=clock, numbers=numbers)
    scopes = Scope("acme", "team"), Scope("acme", "home"), Scope("other", "team")
    return BulkHarness(ch, core, parts, reader, embedding, *scopes)


def line(**fields: Any) -> bytes:  # whatever a line may hold, also what it may not
    """Returns a line of JSON."""
    return json.dumps(fields, ensure_ascii=False).encode()
