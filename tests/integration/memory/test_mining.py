"""Notes that a model makes of several memories, and the repair of what is derived, over the real engine."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

import pytest
from support.memory import NAMELESS, gate_of
from support.shared_database import emptied, shared_database

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse
from loom_common.clickhouse.engine import EmbeddedEngine
from loom_common.clock import FakeClock, MonotonicVersions
from loom_common.errors import LoomError, ModelCallRefused, ProviderFailed
from loom_common.features import Feature
from loom_common.leases import Leases
from loom_common.ledger import FakeLedgerSink
from loom_memory.app.batches import StoredTexts
from loom_memory.app.embedding_fake import FakeEmbedding
from loom_memory.app.entities.naming import Naming
from loom_memory.app.entities.vectors import EntityVectors
from loom_memory.app.extract.storing_fake import FakeWriter, Killed
from loom_memory.app.holds import WriterHolds
from loom_memory.app.llm_fake import Asked, FakeLlm
from loom_memory.app.passes import Passes
from loom_memory.domain.analyzer import AnalyzedText
from loom_memory.domain.memory import Content, Identity, Memory
from loom_memory.store.entities import EntityRepository
from loom_memory.store.memories import MemoryRepository
from loom_memory.store.mining import MiningRepository
from loom_memory.store.worker_passes import WorkerPassRepository
from loom_memory.workers.entities import EntityExtractor
from loom_memory.workers.leading import Leading, Worker
from loom_memory.workers.mining import DIGEST, OBSERVATIONS, REFLECTION, Mining, MiningWorker
from loom_memory.workers.projection_repair import ProjectionRepair

TEAM = Scope("acme", "team")
TABLES = ("memory", "entities", "entity_mentions", "entity_vectors", "worker_passes", "worker_cursors", "leases")
NOTE = json.dumps({"notes": [{"text": "Ann swims on most mornings.", "sources": [1, 2]}]})


@dataclass
class Rig:
    """The workers of one process."""

    ch: ClickHouse
    clock: FakeClock
    llm: FakeLlm
    writer: FakeWriter
    ledger: FakeLedgerSink
    embedding: FakeEmbedding

    def __post_init__(self) -> None:
        self.versions = MonotonicVersions(self.clock)
        self.entities = EntityRepository(self.ch)
        self.passes = WorkerPassRepository(self.ch)
        self.gate = gate_of(NAMELESS)

    def leading(self, worker: Worker) -> Leading:
        return Leading(worker, Leases(self.ch, "memory"), self.passes, self.clock)

    def mining(self, mining: Mining) -> Leading:
        passes = Passes(mining.feature, self.clock, self.ledger)
        return self.leading(
            MiningWorker(
                mining, MiningRepository(self.ch), self.entities, self.passes, self.llm, self.writer, passes, self.gate,
                self.clock,
            )
        )  # fmt: skip

    async def write(
        self, key: str, value: str, *, session: str = "", actor: str = "human:ann", tags: tuple[str, ...] = ()
    ) -> None:
        now = self.clock.now()
        memory = Memory(
            TEAM, Identity(key, "u1", session), Content(value, tags=tags), actor, 1, self.versions.next(), now, now
        )
        await MemoryRepository(self.ch).insert([(memory, AnalyzedText([], 0))])

    async def fill(self, count: int, *, session: str = "", actor: str = "human:ann") -> None:
        for number in range(count):
            await self.write(f"{session}k{number}", f"Ann swam on day {number}", session=session, actor=actor)

    @property
    def notes(self) -> dict[str, Content]:
        return {identity.key: content for (_, identity), content in self.writer.kept.items()}


@pytest.fixture(scope="module")
def clickhouse_database(clickhouse_engine: EmbeddedEngine) -> Iterator[str]:
    """One database for all tests here: making the tables takes longer than any of them."""
    yield from shared_database(clickhouse_engine, "t_mining")


@pytest.fixture
async def rig(clickhouse: ClickHouse) -> Rig:
    await emptied(clickhouse, "memory", "loom_memory", TABLES)
    llm = FakeLlm()
    llm.rule = lambda asked: NOTE
    clock = FakeClock(datetime.fromisoformat("2026-11-29T12:00:00+00:00"))
    return Rig(clickhouse, clock, llm, FakeWriter(), FakeLedgerSink(), FakeEmbedding(dim=8))


@pytest.mark.parametrize(("mining", "kind"), [(OBSERVATIONS, "observation"), (DIGEST, "digest")])
async def test_a_day_that_is_over_is_noted_once_for_its_newest_writer(rig: Rig, mining: Mining, kind: str) -> None:
    await rig.fill(4, actor="human:ann")
    await rig.write("k4", "Ann swam again", actor="human:bob")
    await rig.write("k5", "An extract", actor="process:extraction-worker")
    worker = rig.mining(mining)
    await worker.turn()
    assert rig.notes == {}, "the day is not over"
    rig.clock.advance(86_400)
    await worker.turn()
    (content,) = rig.notes.values()
    assert (content.kind, content.tags[0]) == (kind, "consolidated")
    assert [tag for tag in content.tags if tag.startswith("src:")] == ["src:k0", "src:k1"]
    assert [asked.attribution.subject for asked in rig.llm.asked if asked.attribution] == ["bob"]
    await worker.turn()
    assert len(rig.llm.asked) == 1
    (entry,) = rig.ledger.entries
    assert (entry.row.op, entry.row.llm_call_count) == (mining.feature.value, 1)


async def test_a_session_is_reflected_on_once_it_has_ended_and_again_when_it_goes_on(rig: Rig) -> None:
    await rig.fill(3, session="s1")
    worker = rig.mining(REFLECTION)
    await worker.turn()
    assert rig.notes == {}
    rig.clock.advance(3600)
    await worker.turn()
    assert len(rig.notes) == 1
    await rig.write("late", "Ann swam late", session="s1")
    rig.clock.advance(3600)
    await worker.turn()
    assert (len(rig.notes), len(rig.llm.asked)) == (1, 2), "the note of a session is one"


async def test_what_was_made_of_memories_is_made_into_nothing_more(rig: Rig) -> None:
    for number in range(9):
        await rig.write(f"n{number}", "A note", tags=("consolidated",))
    rig.clock.advance(86_400)
    await rig.mining(DIGEST).turn()
    assert rig.llm.asked == []


async def test_a_held_writer_is_skipped_and_others_go_on(rig: Rig) -> None:
    await rig.fill(3, session="s1", actor="human:eve")
    await rig.fill(3, session="s2", actor="human:ann")
    rig.clock.advance(3600)

    def rule(asked: Asked) -> str | LoomError:
        subject = asked.attribution.subject if asked.attribution else ""
        return ModelCallRefused("no", detail={}) if subject == "eve" else NOTE

    rig.llm.rule = rule
    worker = rig.mining(REFLECTION)
    assert await worker.turn() == {"held": 1, "noted": 1}
    assert await worker.turn() == {"held": 1}
    rig.llm.rule = lambda asked: NOTE
    assert await worker.turn() == {"noted": 1}
    assert await worker.turn() is None


async def test_a_group_that_a_model_fails_for_is_passed_over_in_the_end(rig: Rig) -> None:
    await rig.fill(3, session="s1")
    rig.clock.advance(3600)
    rig.llm.rule = lambda asked: ProviderFailed("500")
    worker = rig.mining(REFLECTION)
    assert [await worker.turn() for _ in range(4)] == [{"failed": 1}, {"failed": 1}, {"given_up": 1}, None]


async def test_a_kill_before_the_note_is_stored_is_made_good(rig: Rig) -> None:
    await rig.fill(3, session="s1")
    rig.clock.advance(3600)
    rig.writer.crash_after = 0
    with pytest.raises(Killed):
        await rig.mining(REFLECTION).turn()
    rig.writer.crash_after = None
    rig.clock.advance(600)
    await rig.mining(REFLECTION).turn()
    assert len(rig.notes) == 1


@pytest.mark.parametrize("answer", ["no JSON", '{"notes": []}', '{"notes": [{"text": "x", "sources": [99]}]}'])
async def test_a_note_that_rests_on_nothing_is_none(rig: Rig, answer: str) -> None:
    await rig.fill(3, session="s1")
    rig.clock.advance(3600)
    rig.llm.rule = lambda asked: answer
    assert await rig.mining(REFLECTION).turn() == {"nothing_to_say": 1}
    assert rig.notes == {}


async def test_a_fake_model_notes_nothing(rig: Rig) -> None:
    await rig.fill(3, session="s1")
    rig.clock.advance(3600)
    rig.llm.fake = True
    assert await rig.mining(REFLECTION).turn() is None


async def test_the_repair_makes_what_is_derived_fit_again(rig: Rig) -> None:
    rig.llm.fake = True
    extractor = EntityExtractor(
        rig.entities, rig.passes, Naming(rig.llm), rig.embedding,
        Passes(Feature.ENTITY_EXTRACTOR, rig.clock, rig.ledger), rig.gate, rig.clock,
    )  # fmt: skip
    repair = rig.leading(
        ProjectionRepair(
            rig.entities, extractor, EntityVectors(rig.entities, rig.clock),
            StoredTexts(rig.embedding, "projection_repair", rig.clock, rig.ledger, rig.gate),
            WriterHolds(rig.gate, rig.clock), rig.gate, rig.clock,
        )
    )  # fmt: skip
    await rig.write("a", "We met Ann Smith in Rome.")
    await rig.write("b", "We saw Rome.")
    rig.embedding.refusal = ProviderFailed("500")
    await rig.leading(extractor).turn()
    rig.embedding.refusal = None
    # A count that a killed pass left, and a memory that was removed without a deletion being read.
    (rome,) = await rig.entities.by_names(TEAM, "u1", ["rome"])
    await rig.entities.put(TEAM, "u1", [replace(rome, mention_count=7, version=rome.version + 1)])
    await rig.ch.command("ALTER TABLE memory DELETE WHERE memory_key = 'a'", settings={"mutations_sync": 2})
    rig.clock.advance(3600)
    assert await repair.turn() == {"forgotten": 1, "embedded": 1}
    (rome,) = await rig.entities.by_names(TEAM, "u1", ["rome"])
    assert rome.mention_count == 1
    assert await rig.entities.by_names(TEAM, "u1", ["ann smith"]) == []
    assert await repair.turn() == {}
    await rig.entities.put(TEAM, "u1", [replace(rome, mention_count=7, version=rome.version + 1)])
    rig.clock.advance(3600)
    assert await repair.turn() == {"recounted": 1}
