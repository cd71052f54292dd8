"""Who and what memories name, over the real engine: found, put together, counted, and gone with what named it."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pytest
from support.memory import NAMELESS, gate_of
from support.shared_database import emptied, shared_database

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse
from loom_common.clickhouse.engine import EmbeddedEngine
from loom_common.clock import FakeClock, MonotonicVersions
from loom_common.errors import ModelCallRefused, ProviderFailed
from loom_common.features import Feature
from loom_common.leases import Leases
from loom_common.ledger import FakeLedgerSink
from loom_common.model_calls.switch import FakeSwitch
from loom_memory.app.embedding import EmbeddedText
from loom_memory.app.embedding_fake import FakeEmbedding
from loom_memory.app.entities.leg import StoredEntities
from loom_memory.app.entities.naming import Naming
from loom_memory.app.entities.vectors import EntityVectors
from loom_memory.app.llm_fake import FakeLlm
from loom_memory.app.passes import Passes
from loom_memory.domain.analyzer import AnalyzedText
from loom_memory.domain.entities import Entity
from loom_memory.domain.memory import Content, Filter, Identity, Memory
from loom_memory.domain.vectors import Parts, VectorSpace
from loom_memory.store.entities import EntityRepository
from loom_memory.store.memories import MemoryRepository
from loom_memory.store.worker_passes import WorkerPassRepository
from loom_memory.workers.entities import EntityExtractor
from loom_memory.workers.leading import Leading

TABLES = ("memory", "entities", "entity_mentions", "entity_vectors", "worker_passes", "worker_cursors", "leases")
TEAM = Scope("acme", "team")


@dataclass
class Rig:
    """The extractor of one process."""

    ch: ClickHouse
    clock: FakeClock
    llm: FakeLlm
    embedding: FakeEmbedding
    ledger: FakeLedgerSink

    def __post_init__(self) -> None:
        self.repository = EntityRepository(self.ch)
        self.cursors = WorkerPassRepository(self.ch)
        self.switch = FakeSwitch()
        self.versions = MonotonicVersions(self.clock)
        self.worker = EntityExtractor(
            self.repository,
            self.cursors,
            Naming(self.llm),
            self.embedding,
            Passes(Feature.ENTITY_EXTRACTOR, self.clock, self.ledger),
            gate_of(NAMELESS, self.switch),
            self.clock,
        )
        self.leading = Leading(self.worker, Leases(self.ch, "memory"), self.cursors, self.clock)

    async def write(
        self, key: str, value: str, *, user_id: str = "", actor: str = "human:ann", gone: bool = False
    ) -> None:
        now = self.clock.now()
        memory = Memory(
            TEAM, Identity(key, user_id), Content(value), actor, 1, self.versions.next(), now, now,
            tombstoned_at=now if gone else None,
        )  # fmt: skip
        await MemoryRepository(self.ch).insert([(memory, AnalyzedText([], 0))])

    async def turn(self) -> dict[str, int]:
        """Lets the worker read everything, also what was written a moment ago."""
        self.clock.advance(120)
        return dict(await self.leading.turn() or {})

    async def entity(self, name: str, user_id: str = "") -> Entity | None:
        found = await self.repository.by_names(TEAM, user_id, [name.casefold()])
        return found[0] if found else None


@pytest.fixture(scope="module")
def clickhouse_database(clickhouse_engine: EmbeddedEngine) -> Iterator[str]:
    """One database for all tests here: making the tables takes longer than any of them."""
    yield from shared_database(clickhouse_engine, "t_entity_extractor")


@pytest.fixture
async def rig(clickhouse: ClickHouse) -> Rig:
    await emptied(clickhouse, "memory", "loom_memory", TABLES)
    # The engine keeps times of the real calendar; versions have to lie behind it.
    clock = FakeClock(datetime.fromisoformat("2026-11-30T12:00:00+00:00"))
    return Rig(clickhouse, clock, FakeLlm(fake=True), FakeEmbedding(dim=16), FakeLedgerSink())


async def test_a_keyless_deployment_finds_who_and_what_memories_name(rig: Rig) -> None:
    await rig.write("a", "Yesterday Ann Smith met Bob at Acme Corp (AC) in New York.")
    await rig.write("b", "We told Ann Smith that AC moves to Rome.")
    assert await rig.turn() == {"memories": 2, "entities": 5}
    ann, acme = await rig.entity("Ann Smith"), await rig.entity("AC")
    assert ann is not None
    assert acme is not None
    assert (ann.mention_count, acme.name, acme.aliases, acme.mention_count) == (2, "Acme Corp", ("AC",), 2)
    found = await StoredEntities(rig.repository).find(TEAM, Filter(), "What about acme corp?", (), 10)
    assert set(found) == {Identity("a"), Identity("b")}
    assert await rig.turn() == {}
    assert rig.llm.asked == []


async def test_what_a_memory_names_is_gone_with_it(rig: Rig) -> None:
    await rig.write("a", "We met Ann Smith in Rome.")
    await rig.write("b", "We saw Rome.")
    await rig.turn()
    await rig.write("a", "", gone=True)
    await rig.turn()
    rome = await rig.entity("Rome")
    assert await rig.entity("Ann Smith") is None
    assert rome is not None
    assert rome.mention_count == 1
    assert await StoredEntities(rig.repository).find(TEAM, Filter(), "Ann Smith", (), 10) == {}


async def test_users_entities_are_apart(rig: Rig) -> None:
    await rig.write("a", "We met Ann Smith in Rome.", user_id="u1")
    await rig.write("a", "We met Ann Smith in Oslo.", user_id="u2")
    await rig.turn()
    one, other = await rig.entity("Ann Smith", "u1"), await rig.entity("Ann Smith", "u2")
    assert one is not None
    assert other is not None
    assert (one.mention_count, other.mention_count) == (1, 1)
    leg = StoredEntities(rig.repository)
    assert set(await leg.find(TEAM, Filter(user_id="u1"), "Ann Smith", (), 10)) == {Identity("a", "u1")}
    assert await leg.find(TEAM, Filter(user_id="u1"), "Oslo", (), 10) == {}


async def test_a_model_names_them_for_who_wrote_the_memory(rig: Rig) -> None:
    rig.llm.fake = False
    rig.llm.rule = lambda asked: json.dumps(
        {"entities": [{"memory": 1, "name": "Robert Smith", "kind": "person", "aliases": ["Bobby"]}]}
    )
    await rig.write("a", "robert smith, whom we call bobby, sings", actor="human:ann")
    await rig.write("b", "nothing", actor="human:bob")
    await rig.turn()
    found = await rig.entity("Bobby")
    assert found is not None
    assert (found.kind, found.name) == ("person", "Robert Smith")
    subjects = [asked.attribution.subject for asked in rig.llm.asked if asked.attribution]
    assert sorted(subjects) == ["ann", "bob"]
    (entry,) = rig.ledger.entries
    assert (entry.row.op, entry.row.llm_call_count) == ("entity_extractor", 2)


@pytest.mark.parametrize("answer", ["not JSON", ProviderFailed("500"), ModelCallRefused("no", detail={})])
async def test_a_model_that_does_not_answer_leaves_it_to_the_form(rig: Rig, answer: object) -> None:
    rig.llm.fake = False
    rig.llm.rule = lambda asked: answer  # type: ignore[assignment, return-value]  # one of its answers
    await rig.write("a", "We met Ann Smith in Rome.")
    await rig.turn()
    assert await rig.entity("Ann Smith") is not None


async def test_two_that_turn_out_to_be_one_are_one(rig: Rig) -> None:
    await rig.write("a", "We met Robert Smith here.")
    await rig.write("b", "We met Bob Jones here.")
    await rig.turn()
    await rig.write("c", "We met Robert Smith, also known as Bob Jones, here.")
    await rig.turn()
    one, other = await rig.entity("Robert Smith"), await rig.entity("Bob Jones")
    assert one is not None
    assert one == other
    assert one.mention_count == 3


async def test_a_kill_in_the_middle_is_made_good(rig: Rig) -> None:
    await rig.write("a", "We met Ann Smith in Rome.")
    # The entities are stored before their vectors are asked for, and what names them after.
    asked = asyncio.Event()

    class Hanging(FakeEmbedding):
        async def embed_many(self, texts: Sequence[str]) -> list[EmbeddedText]:
            asked.set()
            await asyncio.Event().wait()
            return []

    turn = asyncio.create_task(replace(rig, embedding=Hanging(dim=16)).turn())
    async with asyncio.timeout(20):
        await asked.wait()
    turn.cancel()
    await asyncio.gather(turn, return_exceptions=True)
    rig.clock.advance(600)
    assert (await replace(rig).turn())["memories"] == 1
    ann = await rig.entity("Ann Smith")
    assert ann is not None
    assert ann.mention_count == 1
    rows = await rig.ch.query("SELECT count() FROM entities FINAL WHERE tombstoned_at IS NULL")
    assert rows.scalar() == 2


async def test_a_new_embedder_gives_entities_new_vectors(rig: Rig) -> None:
    await rig.write("a", "We met Ann Smith in Rome.")
    await rig.turn()
    table, space = EntityVectors(rig.repository, rig.clock), VectorSpace("new", 8)
    assert await table.scopes("", "", ()) == [TEAM]
    assert await table.waiting(TEAM, space, Parts.ALL) == 2
    embedder = FakeEmbedding(dim=8, model="new")
    async for batch in table.batches(TEAM, space, Parts.ALL, 1, staged=False):
        embedded = await embedder.embed_many([waiting.text for waiting in batch])
        stored = await table.store(TEAM, space, list(zip(batch, embedded, strict=True)), staged=False)  # type: ignore[arg-type]
        assert stored == 1
    assert await table.waiting(TEAM, space, Parts.ALL) == 0


async def test_an_organisation_that_is_switched_off_is_left_out(rig: Rig) -> None:
    await rig.write("a", "We met Ann Smith in Rome.")
    rig.switch.orgs_off.add("acme")
    assert await rig.turn() == {}
    rig.clock.advance(timedelta(hours=1).total_seconds())
    rig.switch.orgs_off.clear()
    assert (await rig.turn())["memories"] == 1
