"""Memories that were stored without vectors, and who gives them some."""

import pytest
from support.memory import AGENTS, CONCEPTS, NAMELESS, AttributedEmbedding, MemoryHarness, gate_of, memory_over

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse
from loom_common.clock import FakeClock
from loom_common.errors import (
    BackendUnavailable,
    ModelCallDeferred,
    ModelCallRefused,
    ModelCallsOff,
    ModelPolicyUnread,
)
from loom_common.leases import Leases
from loom_common.model_calls.held import SwitchUnread
from loom_common.model_calls.switch import FakeSwitch
from loom_memory.app.embedding_fake import FakeEmbedding
from loom_memory.app.reembedding import LEASE
from loom_memory.app.search import SearchMode
from loom_memory.app.status import MemoryStatus
from loom_memory.domain.memory import Identity
from loom_memory.store.embeddings import EmbeddedChunk, EmbeddingRepository
from loom_memory.store.stubs import Waiting
from loom_memory.workers.embedding import Turn


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def memory(clickhouse: ClickHouse, clock: FakeClock) -> MemoryHarness:
    return await memory_over(clickhouse, FakeEmbedding(CONCEPTS, model="new"), clock)


async def set_without_model(
    memory: MemoryHarness, key: str, value: str, scope: Scope | None = None, actor: str = "human:test"
) -> None:
    memory.embedding.refusal = ModelCallsOff("off")
    try:
        assert (await memory.set(key, value, scope=scope, actor=actor)).stored
    finally:
        memory.embedding.refusal = None


async def rows(memory: MemoryHarness) -> list[tuple[str, str, int, int]]:
    await memory.ch.command("OPTIMIZE TABLE memory_embeddings FINAL")
    found = await memory.ch.query(
        "SELECT embedding_model, memory_key, embedding_dim, chunk FROM memory_embeddings ORDER BY ALL"
    )
    return [(row[0], row[1], row[2], row[3]) for row in found]


async def test_a_memory_stored_while_calls_are_off_waits_as_a_stub_and_is_found_by_words(memory: MemoryHarness) -> None:
    await memory.set("k1", "Ana bought a car")
    assert (await memory.search("Ana")).pending == 0
    await set_without_model(memory, "k2", "Ben drinks coffee")
    found = await memory.search("Ben drinks")
    assert ([hit.memory.identity.key for hit in found.hits], found.pending) == (["k2"], 1)
    assert await memory.found("espresso", mode=SearchMode.VECTOR) == []
    assert await memory.parts.embedding_worker.take_turn() == Turn(embedded=1)
    assert await memory.found("Ben drinks espresso", mode=SearchMode.VECTOR) == ["k2"]
    assert await rows(memory) == [("new", "k1", 64, 0), ("new", "k2", 64, 0)]


async def test_a_write_that_meets_no_embedder_stores_nothing(memory: MemoryHarness) -> None:
    memory.embedding.failure = BackendUnavailable("away")
    with pytest.raises(BackendUnavailable):
        await memory.set("k", "Ana bought a car")
    memory.embedding.failure = None
    assert await memory.get("k") is None
    assert await rows(memory) == []


async def test_stubs_are_taken_newest_first_and_those_of_past_versions_not_at_all(
    memory: MemoryHarness, clock: FakeClock
) -> None:
    for number in range(5):
        clock.advance(1)
        await set_without_model(memory, f"k{number}", f"note {number}")
    await memory.set("k4", "note four")
    await memory.delete("k3")
    worker = memory.parts.embedding_worker
    worker._batch_size = 1
    assert await worker.count() == Waiting(pending=3, stubs=3)
    due = await worker._stubs.due(await worker._texts.space(), clock.now(), 10)
    assert [stub.waiting.identity.key for stub in due] == ["k2", "k1", "k0"]
    texts = memory.embedding.texts
    assert await worker.take_turn() == Turn(embedded=3)
    assert memory.embedding.texts == texts + 3
    assert await worker.count() == Waiting(0, 0)
    await memory.parts.deletions.close()


async def test_a_stub_of_an_older_model_is_embedded_under_the_served_one_and_removed(memory: MemoryHarness) -> None:
    await memory.set("k", "Ana bought a car")
    row = await memory.get("k")
    assert row is not None
    await memory.ch.command("TRUNCATE TABLE memory_embeddings")
    stub = EmbeddedChunk(memory.scope, row.identity, row.version, 0, 0, 16, (), "kept", row.updated_at, "signed")
    await EmbeddingRepository(memory.ch).insert("older", [stub])
    assert await memory.parts.embedding_worker.take_turn() == Turn(embedded=1)
    assert await rows(memory) == [("new", "k", 64, 0)]
    kept = await memory.ch.query("SELECT status, invalid_at, attestation FROM memory_embeddings")
    assert kept.rows == [("kept", row.updated_at, "signed")]


async def test_a_memory_without_any_row_gets_a_stub_and_then_its_vectors(memory: MemoryHarness) -> None:
    await memory.fill({f"k{number:03}": f"note {number}" for number in range(70)})
    await memory.ch.command("ALTER TABLE memory UPDATE attestation = 'signed' WHERE 1 SETTINGS mutations_sync = 1")
    await memory.ch.command("TRUNCATE TABLE memory_embeddings")
    worker = memory.parts.embedding_worker
    assert await worker.stub_missing() == 70
    assert {row[2] for row in await rows(memory)} == {0}
    assert await worker.stub_missing() == 0
    assert await worker.take_turn() == Turn(embedded=70)
    kept = await memory.ch.query("SELECT attestation, embedding_dim, count() FROM memory_embeddings GROUP BY ALL")
    assert kept.rows == [("signed", 64, 70)]


async def test_a_text_that_fails_rests_twice_as_long_each_time_and_keeps_no_other_from_its_vectors(
    memory: MemoryHarness, clock: FakeClock
) -> None:
    await set_without_model(memory, "k1", "poison ivy")
    await set_without_model(memory, "k2", "garden roses")
    memory.embedding.poison = {"poison"}
    worker = memory.parts.embedding_worker
    assert await worker.take_turn() == Turn(embedded=1, failed=1)
    for rest_s in (60, 120, 240):
        clock.advance(rest_s - 1)
        assert await worker.take_turn() == Turn()
        clock.advance(1)
        assert await worker.take_turn() == Turn(failed=1)
    memory.embedding.poison = set()
    clock.advance(86_400)
    assert await worker.take_turn() == Turn(embedded=1)
    assert [row[2] for row in await rows(memory)] == [64, 64]


async def test_an_organisation_whose_calls_stay_off_waits_without_an_attempt_and_others_go_on(
    memory: MemoryHarness, clock: FakeClock
) -> None:
    await set_without_model(memory, "k", "garden roses")
    memory.embedding.refusal = ModelCallsOff("off")
    worker = memory.parts.embedding_worker
    assert await worker.take_turn() == Turn()
    memory.embedding.refusal = None
    await set_without_model(memory, "k", "garden roses", Scope("other", "team"))
    assert await worker.take_turn() == Turn(embedded=1)
    clock.advance(300)
    assert await worker.take_turn() == Turn(embedded=1)


async def attempts(memory: MemoryHarness) -> dict[str, list[int]]:
    """Returns of each stub what its rows count."""
    found = await memory.ch.query(
        "SELECT memory_key, arraySort(groupArray(chunk)) FROM memory_embeddings WHERE embedding_dim = 0 GROUP BY ALL"
    )
    return {key: list(counted) for key, counted in found}


async def test_a_refused_agent_rests_without_an_attempt_and_keeps_no_other_writer_from_the_batch(
    clickhouse: ClickHouse, clock: FakeClock
) -> None:
    embedding = AttributedEmbedding(model="new")
    memory = await memory_over(clickhouse, embedding, clock, model_calls=gate_of(AGENTS))
    await set_without_model(memory, "o1", "garden roses")
    for number in range(3):
        clock.advance(1)
        await set_without_model(memory, f"k{number}", f"note {number}", actor="process:sa:okta:planner")
    embedding.refused["sa:okta:planner"] = ModelCallRefused("over its budget", retry_after_s=100)
    worker = memory.parts.embedding_worker
    worker._batch_size = 1  # the newest, which is the agent's, fills it
    assert await worker.take_turn() == Turn(embedded=1)
    assert embedding.calls == [("acme", "test", ["garden roses"])]
    assert await attempts(memory) == {"k0": [0], "k1": [0], "k2": [0]}
    resting = "SELECT memory_key, toUnixTimestamp(embed_retry_at) FROM memory_embeddings WHERE embed_retry_at > 0"
    assert (await clickhouse.query(resting)).rows == [("k2", int(clock.now().timestamp()) + 100)]
    embedding.refused.clear()
    clock.advance(99)
    assert await worker.take_turn() == Turn()
    clock.advance(1)
    assert await worker.take_turn() == Turn(embedded=3)


@pytest.mark.parametrize("held", [ModelCallRefused, ModelCallDeferred, ModelCallsOff, ModelPolicyUnread])
async def test_a_text_that_is_held_after_others_of_its_call_were_bought_spends_no_attempt(
    clickhouse: ClickHouse, clock: FakeClock, held: type[ModelCallRefused]
) -> None:
    embedding = AttributedEmbedding(model="new")
    memory = await memory_over(clickhouse, embedding, clock)
    await set_without_model(memory, "bought", "garden roses")
    await set_without_model(memory, "held", "garden tulips")
    embedding.refused_texts["garden tulips"] = held("not now")
    worker = memory.parts.embedding_worker
    assert await worker.take_turn() == Turn(embedded=1)
    assert await attempts(memory) == {"held": [0]}
    embedding.refused_texts.clear()
    assert await worker.take_turn() == Turn()
    clock.advance(300)
    assert await worker.take_turn() == Turn(embedded=1)


async def test_organisations_share_a_call_and_its_cost_but_for_one_that_is_off(
    clickhouse: ClickHouse, clock: FakeClock
) -> None:
    embedding, switch = AttributedEmbedding(model="new"), FakeSwitch("off")
    memory = await memory_over(clickhouse, embedding, clock, model_calls=gate_of(NAMELESS, switch))
    for org, value in (("acme", "a" * 30), ("off", "unsent"), ("zeta", "z" * 10)):
        await set_without_model(memory, "k", value, Scope(org, "team"))
    worker = memory.parts.embedding_worker
    assert await worker.take_turn() == Turn(embedded=2)
    assert [sorted(texts) for _, _, texts in embedding.calls] == [["a" * 30, "z" * 10]]
    spent = {
        entry.row.org: (entry.row.embedding_tokens, entry.row.upstream_cost_usd) for entry in memory.ledger.entries
    }
    assert sorted(spent) == ["acme", "zeta"]
    assert sum(tokens for tokens, _ in spent.values()) == 10
    assert (spent["acme"][1], spent["zeta"][1]) == (0.75, 0.25)
    switch.orgs_off.clear()
    assert await worker.take_turn() == Turn(embedded=1)  # it rested nowhere


async def test_a_switch_that_turns_while_a_shared_call_is_made_holds_its_own_organisation_only(
    clickhouse: ClickHouse, clock: FakeClock
) -> None:
    embedding = AttributedEmbedding(model="new")
    memory = await memory_over(clickhouse, embedding, clock)
    await set_without_model(memory, "k", "garden roses", Scope("zeta", "team"))
    clock.advance(1)
    await set_without_model(memory, "k", "garden tulips", Scope("acme", "team"))
    embedding.refused["acme"] = ModelCallsOff("off")
    assert await memory.parts.embedding_worker.take_turn() == Turn(embedded=1)
    assert embedding.calls == [("zeta", "test", ["garden roses"])]


async def test_a_switch_that_cannot_be_read_ends_the_turn_and_leaves_all_as_it_is(
    clickhouse: ClickHouse, clock: FakeClock
) -> None:
    embedding = AttributedEmbedding(model="new")
    memory = await memory_over(clickhouse, embedding, clock)
    await set_without_model(memory, "k", "garden roses")
    worker = memory.parts.embedding_worker
    worker._texts._waits_s = ()
    embedding.refused["acme"] = SwitchUnread()
    with pytest.raises(ModelPolicyUnread):
        await worker.take_turn()
    assert await attempts(memory) == {"k": [0]}
    embedding.refused.clear()
    assert await worker.take_turn() == Turn(embedded=1)


async def test_a_row_that_names_no_organisation_is_given_up_without_a_call(memory: MemoryHarness) -> None:
    await set_without_model(memory, "k", "garden roses", Scope("", "team"))
    texts = memory.embedding.texts
    worker = memory.parts.embedding_worker
    assert await worker.take_turn() == Turn(given_up=1)
    assert await worker.take_turn() == Turn()
    assert memory.embedding.texts == texts


async def test_a_stub_that_a_crash_left_beside_its_vectors_is_removed(memory: MemoryHarness) -> None:
    await memory.set("k", "garden roses")
    row = await memory.get("k")
    assert row is not None
    stub = EmbeddedChunk(memory.scope, Identity("k"), row.version, 0, 0, 12, ())
    await EmbeddingRepository(memory.ch).insert("new", [stub])
    texts = memory.embedding.texts
    assert await memory.parts.embedding_worker.take_turn() == Turn()
    assert await rows(memory) == [("new", "k", 64, 0)]
    assert memory.embedding.texts == texts


async def test_who_does_not_hold_the_lease_leaves_the_work(memory: MemoryHarness) -> None:
    await set_without_model(memory, "k", "garden roses")
    async with Leases(memory.ch, "memory").held(LEASE, 60, wait_s=5):
        assert await memory.parts.embedding_worker.take_turn() == Turn()
        assert await memory.parts.embedding_worker.stub_missing() == 0
    assert await memory.parts.embedding_worker.take_turn() == Turn(embedded=1)


async def test_the_status_says_what_waits_and_stays_ready(memory: MemoryHarness) -> None:
    await memory.set("old", "garden roses")
    await set_without_model(memory, "stub", "garden tulips")
    worker = (await memory_over(memory.ch, FakeEmbedding(dim=32, model="newer"))).parts.embedding_worker
    status = MemoryStatus(memory.ch, memory.embedding, lambda: (), lambda: worker.waiting)
    await status.learn_model()
    assert "embedding_pending" not in (await status.report()).facts
    await worker.count()
    report = await status.report()
    assert report.ready
    assert (report.facts["embedding_pending"], report.facts["embedding_stubs"]) == ("2", "1")
    assert [(problem.code, problem.severity) for problem in report.problems] == [("embedding_pending", "warning")]
