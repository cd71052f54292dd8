"""Memory's use cases over a real engine and a deterministic embedder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from loom_common.auth.directory import Directory, FakeDirectory, NamespaceInfo
from loom_common.call import Scope, current
from loom_common.clickhouse import ClickHouse
from loom_common.clock import Clock, SystemClock
from loom_common.errors import LoomError
from loom_common.leases import Leases
from loom_common.ledger import FakeLedgerSink
from loom_common.migrations import migrate
from loom_common.model_calls.gate import ModelCallGate
from loom_common.model_calls.headers import parse_identity_headers
from loom_common.model_calls.policy import InferencePolicy
from loom_common.model_calls.reads import FakeReads
from loom_common.model_calls.switch import FakeSwitch
from loom_common.usage import Usage
from loom_memory.app.drafts import MAX_CALL_BYTES, Draft, Outcome, Written
from loom_memory.app.embedding import EmbeddedText
from loom_memory.app.embedding_fake import FakeEmbedding
from loom_memory.app.llm import LlmPort
from loom_memory.app.llm_fake import FakeLlm
from loom_memory.app.read import Page
from loom_memory.app.search import SearchMode, SearchQuery
from loom_memory.app.thresholds import ThresholdsPort
from loom_memory.app.thresholds_fake import FakeThresholds
from loom_memory.domain.memory import Content, Filter, Identity, Memory, SearchResult
from loom_memory.settings import MemorySettings
from loom_memory.store.embeddings import EmbeddingRepository
from loom_memory.store.versions import VersionRepository
from loom_memory.wiring import MemoryParts, build_parts
from loom_memory.workers.sweep import Sweep, Swept

# Words without a letter in common that mean the same, so that a test can search by paraphrase alone.
CONCEPTS: Mapping[str, str] = {
    "automobile": "car",
    "vehicle": "car",
    "physician": "doctor",
    "residence": "home",
    "house": "home",
    "beverage": "coffee",
    "espresso": "coffee",
    "purchased": "bought",
    "acquired": "bought",
}


class AttributedEmbedding(FakeEmbedding):
    """Notes whom each call is for, and refuses some.

    Attributes:
        calls: Organisation, subject and texts of each call that was answered.
        refusals: Subject or organisation of each that was refused.
        refused: Why calls for a subject, or for an organisation, are refused.
        refused_texts: Why a text of a call is, though others are embedded.
    """

    def __init__(self, **more: object) -> None:
        super().__init__(CONCEPTS, **more)  # type: ignore[arg-type]  # as `FakeEmbedding`
        self.calls: list[tuple[str, str, list[str]]] = []
        self.refusals: list[str] = []
        self.refused: dict[str, LoomError] = {}
        self.refused_texts: dict[str, LoomError] = {}

    async def embed_many(self, texts: Sequence[str]) -> list[EmbeddedText]:
        """See `EmbeddingPort.embed_many`."""
        attribution = current().attribution
        if attribution is None:  # a write, whose request is not there in these tests
            return await super().embed_many(texts)
        for name in (attribution.subject, attribution.org):
            if name in self.refused:
                self.refusals.append(name)
                raise self.refused[name]
        self.calls.append((attribution.org, attribution.subject, list(texts)))
        current().usage.merge(Usage(embedding_tokens=10, upstream_cost_usd=1.0))
        found = await super().embed_many(texts)
        return [self.refused_texts.get(text, each) for text, each in zip(texts, found, strict=True)]


def gate_of(policy: InferencePolicy, switch: FakeSwitch | None = None, reads: FakeReads | None = None) -> ModelCallGate:
    """Returns a gate that says what tests say."""
    return ModelCallGate(policy, switch or FakeSwitch(), reads or FakeReads())


NAMELESS = InferencePolicy()
AGENTS = InferencePolicy(
    identity_headers=parse_identity_headers('{"x-agent":"{agent}"}'), gateway_hosts=frozenset({"gateway"})
)
"""Calls name the agent."""


@dataclass(slots=True)
class MemoryHarness:
    """One process's memory, addressed as a caller would."""

    ch: ClickHouse
    parts: MemoryParts
    embedding: FakeEmbedding
    ledger: FakeLedgerSink
    scope: Scope = field(default_factory=lambda: Scope("acme", "team"))

    async def set(
        self,
        key: str,
        value: str,
        *,
        user_id: str = "",
        session_id: str = "",
        expected: int | None = None,
        scope: Scope | None = None,
        actor: str = "human:test",
        **more: object,
    ) -> Written:
        draft = Draft(Identity(key, user_id, session_id), Content(value, **more), expected)  # type: ignore[arg-type]  # any field
        return await self.parts.writer.set_one(scope or self.scope, draft, actor)

    async def set_many(self, drafts: Sequence[Draft]) -> list[Outcome]:
        return await self.parts.writer.set_many(self.scope, drafts, "human:test")

    async def fill(self, values: Mapping[str, str], **more: object) -> None:
        """Stores many memories, as many at a time as one call takes."""
        drafts = [self.draft(key, value, **more) for key, value in values.items()]  # type: ignore[arg-type]  # as `draft`
        longest = max((len(draft.content.value.encode()) for draft in drafts), default=1)
        size = min(500, max(1, MAX_CALL_BYTES // max(longest, 1)))
        for first in range(0, len(drafts), size):
            for outcome in await self.set_many(drafts[first : first + size]):
                if isinstance(outcome, LoomError):
                    raise outcome

    @staticmethod
    def draft(
        key: str,
        value: str,
        *,
        user_id: str = "",
        session_id: str = "",
        expected: int | None = None,
        **more: object,
    ) -> Draft:
        content = Content(value, **more)  # type: ignore[arg-type]  # any field of Content
        return Draft(Identity(key, user_id, session_id), content, expected)

    async def get(self, key: str, user_id: str = "", session_id: str = "") -> Memory | None:
        return await self.parts.reader.get(self.scope, Identity(key, user_id, session_id))

    async def delete(self, key: str, user_id: str = "", session_id: str = "", expected: int | None = None) -> bool:
        identity = Identity(key, user_id, session_id)
        return await self.parts.writer.delete(self.scope, identity, "human:test", expected_version=expected)

    async def history(self, key: str, page_size: int = 50, page_token: str = "") -> Page:
        return await self.parts.reader.history(self.scope, Identity(key), page_size=page_size, page_token=page_token)

    async def list_all(self, page_size: int = 50, wanted: Filter | None = None) -> list[Memory]:
        found: list[Memory] = []
        token = ""
        while True:
            page = await self.parts.reader.list(self.scope, wanted or Filter(), page_size=page_size, page_token=token)
            found += page.memories
            token = page.next_page_token
            if not token:
                return found

    async def search(
        self,
        text: str,
        *,
        top_k: int = 10,
        mode: SearchMode = SearchMode.HYBRID,
        wanted: Filter | None = None,
        scope: Scope | None = None,
    ) -> SearchResult:
        return await self.parts.search.search(scope or self.scope, SearchQuery(text, wanted or Filter(), top_k, mode))

    async def found(self, text: str, **more: object) -> list[str]:
        """Returns the keys of the hits that are not low."""
        result = await self.search(text, **more)  # type: ignore[arg-type]  # as `search`
        return [hit.memory.identity.key for hit in result.hits if not hit.low]


async def memory_over(
    ch: ClickHouse,
    embedding: FakeEmbedding | None = None,
    clock: Clock | None = None,
    directory: Directory | None = None,
    thresholds: ThresholdsPort | None = None,
    model_calls: ModelCallGate | None = None,
    settings: MemorySettings | None = None,
    llm: LlmPort | None = None,
) -> MemoryHarness:
    """Returns one process's memory over `ch`, its tables made."""
    await migrate(ch, "memory", "loom_memory")
    embedding = embedding or FakeEmbedding(CONCEPTS, dim=256)
    directory = directory or FakeDirectory([NamespaceInfo("acme", "team"), NamespaceInfo("acme", "home")])
    ledger = FakeLedgerSink()
    model_calls = model_calls or gate_of(NAMELESS)
    parts = build_parts(
        ch,
        embedding,
        thresholds or FakeThresholds(),
        directory,
        ledger,
        model_calls,
        settings or MemorySettings(),
        clock,
        llm=llm or FakeLlm(fake=True),
    )
    return MemoryHarness(ch, parts, embedding, ledger)


async def sweep(
    memory: MemoryHarness,
    grace_ns: int = 0,
    range_size: int = 50_000,
    batch_size: int = 2_000,
    versions: VersionRepository | None = None,
) -> Swept:
    """Sweeps once, also what was written just now."""
    leases = Leases(memory.ch, "memory")
    lease = await leases.acquire("memory.sweep", 60)
    assert lease is not None
    clock = SystemClock()
    worker = Sweep(
        versions or VersionRepository(memory.ch), EmbeddingRepository(memory.ch), leases, clock,
        interval_s=3600, grace_ns=grace_ns, range_size=range_size, batch_size=batch_size,
    )  # fmt: skip
    try:
        return await worker.sweep(lease)
    finally:
        await lease.release()
