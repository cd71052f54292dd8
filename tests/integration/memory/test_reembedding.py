"""Changing the embedder: every stored text gets vectors of the served model, while everything else goes on."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace

import pytest
from support.memory import AGENTS, CONCEPTS, NAMELESS, AttributedEmbedding, MemoryHarness, gate_of, memory_over

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse
from loom_common.clock import SystemClock
from loom_common.errors import (
    Conflict,
    InvalidArgument,
    ModelCallRefused,
    ModelCallsOff,
    ModelCallUnattributed,
    PayloadTooLarge,
    ProviderFailed,
)
from loom_common.leases import Leases
from loom_common.migrations import migrate
from loom_common.model_calls.switch import FakeSwitch
from loom_memory.app import vector_tables
from loom_memory.app.batches import StoredTexts
from loom_memory.app.embedding import EmbeddedText
from loom_memory.app.embedding_fake import FakeEmbedding
from loom_memory.app.reembedding import LEASE, OP, Progress, Reembedding, ReembedOptions, require_in_database_allowed
from loom_memory.app.search import SearchMode
from loom_memory.domain.vectors import VectorSpace
from loom_memory.store.embeddings import EmbeddedChunk, EmbeddingRepository
from loom_memory.store.rewrites import VectorRewrites

OLD, NEW = VectorSpace("fake-ngram-64", 64), VectorSpace("fake-ngram-128", 128)
# Found by meaning through the concepts of the fake, and by words through their own.
TEXTS = {
    "k1": "Ana bought a car",
    "k2": "Ben drinks coffee",
    "k3": "the doctor called",
    "k4": "violin lessons on monday",
    "k5": "the roof leaks",
    "k6": "kernel scheduler notes",
}


def embedder(space: VectorSpace) -> FakeEmbedding:
    return FakeEmbedding(CONCEPTS, dim=space.dim, model=space.model)


@pytest.fixture
async def changed(clickhouse: ClickHouse) -> AsyncIterator[MemoryHarness]:
    """Memory under another embedder than the one that its six memories were written with."""
    before = await memory_over(clickhouse, embedder(OLD))
    await before.fill(TEXTS)
    harness = await memory_over(clickhouse, embedder(NEW))
    yield harness
    await harness.parts.deletions.close()


async def run(memory: MemoryHarness, reembedding: Reembedding | None = None, **options: object) -> Progress:
    """Runs to the end and returns the last progress, with the failures of all."""
    failures = []
    chosen = ReembedOptions(**{"batch_size": 2, **options})  # type: ignore[arg-type]  # any option
    async with aclosing((reembedding or memory.parts.reembedding).run(chosen)) as progresses:
        async for progress in progresses:
            failures += progress.failures
    assert progress.finished
    return replace(progress, failures=tuple(failures))


async def run_batches(memory: MemoryHarness, count: int, **options: object) -> None:
    """Runs for some batches of two and is ended there."""
    chosen = ReembedOptions(batch_size=2, **options)  # type: ignore[arg-type]  # any option
    async with aclosing(memory.parts.reembedding.run(chosen)) as progresses:
        async for progress in progresses:
            if progress.done >= 2 * count:
                return


def reembedding_with(
    memory: MemoryHarness, embedding: FakeEmbedding, *, waits_s: Sequence[float] = (), lease_wait_s: float = 60
) -> Reembedding:
    clock = SystemClock()
    gate = gate_of(NAMELESS)
    texts = StoredTexts(embedding, OP, clock, memory.ledger, gate, waits_s=waits_s)
    leases = Leases(memory.ch, "memory")
    tables = memory.parts.reembedding.tables
    return Reembedding(tables, texts, VectorRewrites(memory.ch), leases, gate, clock, lease_wait_s=lease_wait_s)


async def vectors(ch: ClickHouse) -> dict[str, dict[str, int]]:
    """Returns rows by model and key, after every rewrite of the store has ended."""
    await ch.command("OPTIMIZE TABLE memory_embeddings FINAL")
    rows = await ch.query("SELECT embedding_model, memory_key, count() FROM memory_embeddings GROUP BY ALL")
    found: dict[str, dict[str, int]] = {}
    for model, key, count in rows:
        found.setdefault(model, {})[key] = count
    return found


async def test_after_a_change_only_words_find_until_all_is_embedded_again(changed: MemoryHarness) -> None:
    assert await changed.found("Ana automobile purchased", mode=SearchMode.VECTOR) == []
    before = await changed.search("violin lessons")
    assert [hit.memory.identity.key for hit in before.hits] == ["k4"]
    assert (before.hits[0].similarity, before.pending) == (None, 6)
    assert (await changed.search("automobile purchased")).abstain_code == "embedder_changed"
    assert (await changed.search("automobile purchased", mode=SearchMode.LEXICAL)).pending == 0

    done = await run(changed)
    assert (done.space, done.total, done.done, done.skipped, done.failed) == (NEW, 6, 6, 0, 0)
    changed.parts.search._pending._some.clear()  # as some seconds would
    after = await changed.search("Ana automobile purchased", mode=SearchMode.VECTOR)
    assert after.hits[0].memory.identity.key == "k1"
    assert after.pending == 0
    rows = [entry.row for entry in changed.ledger.entries]
    assert [(row.org, row.namespace, row.op, row.transport, row.status) for row in rows] == [
        ("acme", "_none", "memory.reembed", "worker", "ok")
    ]
    again = await run(changed)
    assert (again.total, again.done) == (0, 0)
    assert await vectors(changed.ch) == {model: dict.fromkeys(TEXTS, 1) for model in (OLD.model, NEW.model)}


async def test_a_run_that_was_ended_halfway_serves_both_halves_and_is_gone_on_with(changed: MemoryHarness) -> None:
    await run_batches(changed, 1)
    embedded = set((await vectors(changed.ch))[NEW.model])
    assert embedded == {"k1", "k2"}
    result = await changed.search("Ben likes espresso")
    assert [hit.memory.identity.key for hit in result.hits if hit.similarity is not None] == ["k2"]
    assert result.pending == 4
    assert await changed.found("kernel scheduler notes") == ["k6"]
    assert await changed.found("kernel scheduler notes", mode=SearchMode.VECTOR) == []
    texts = changed.embedding.texts
    assert (await run(changed, resume=True)).done == 4
    assert changed.embedding.texts == texts + 4


async def test_a_run_that_is_cancelled_while_it_embeds_leaves_the_lease_to_the_next(changed: MemoryHarness) -> None:
    waiting = asyncio.Event()

    class Stuck(FakeEmbedding):
        async def embed_many(self, texts: object) -> list[EmbeddedText]:
            waiting.set()
            await asyncio.Event().wait()
            raise AssertionError

    stuck = await memory_over(changed.ch, Stuck(CONCEPTS, dim=NEW.dim, model=NEW.model))
    task = asyncio.create_task(run(stuck))
    async with asyncio.timeout(10):
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert (await run(changed)).done == 6


async def test_a_dry_run_counts_and_writes_nothing(changed: MemoryHarness) -> None:
    before = await vectors(changed.ch)
    done = await run(changed, dry_run=True, delete_old=True)
    assert (done.total, done.done, done.deleted) == (6, 0, 0)
    await run(changed, org="acme")
    assert (await run(changed, dry_run=True, delete_old=True)).deleted == 6
    assert (await vectors(changed.ch))[OLD.model] == before[OLD.model]
    assert changed.embedding.texts == 6


async def test_names_keep_the_run_to_one_organisation_or_namespace(changed: MemoryHarness) -> None:
    for options in ({"org": "other"}, {"namespace": "home"}, {"org": "acme", "namespace": "home"}):
        assert (await run(changed, **options)).total == 0
    assert (await run(changed, org="acme", namespace="team", dry_run=True)).total == 6


async def test_old_vectors_are_removed_only_of_what_has_new_ones(changed: MemoryHarness) -> None:
    changed.embedding.poison = {"leaks"}
    done = await run(changed, delete_old=True)
    assert (done.done, done.failed, done.deleted) == (5, 1, 5)
    assert [(failure.key, failure.reason) for failure in done.failures] == [("k5", "PROVIDER_FAILED")]
    assert await vectors(changed.ch) == {OLD.model: {"k5": 1}, NEW.model: dict.fromkeys(set(TEXTS) - {"k5"}, 1)}
    assert await changed.found("the roof leaks") == ["k5"]


async def test_a_version_that_is_written_or_deleted_meanwhile_keeps_its_own_vectors(changed: MemoryHarness) -> None:
    class Meanwhile(FakeEmbedding):
        async def embed_many(self, texts: object) -> list[EmbeddedText]:
            found = await super().embed_many(texts)  # type: ignore[arg-type]  # as it came
            await changed.set("k1", "Ana sold her house")
            await changed.delete("k2")
            return found

    other = reembedding_with(changed, Meanwhile(CONCEPTS, dim=NEW.dim, model=NEW.model))
    done = await run(changed, other, batch_size=6)
    assert (done.done, done.skipped) == (4, 2)
    row = await changed.get("k1")
    assert row is not None
    assert (row.content.value, row.revision) == ("Ana sold her house", 2)
    assert (await vectors(changed.ch))[NEW.model] == {key: 1 for key in TEXTS if key != "k2"}
    assert (await changed.found("Ana residence sold", mode=SearchMode.VECTOR))[:1] == ["k1"]
    assert "k2" not in await changed.found("Ben drinks coffee")


async def test_staged_vectors_are_shown_once_every_one_is_there(changed: MemoryHarness) -> None:
    changed.embedding.poison = {"leaks"}
    held = await run(changed, staged=True)
    assert (held.done, held.failed, held.withheld) == (5, 1, 1)
    assert set(await vectors(changed.ch)) == {OLD.model, NEW.staged}
    assert await changed.found("Ana automobile purchased", mode=SearchMode.VECTOR) == []
    changed.embedding.poison = set()
    texts = changed.embedding.texts
    done = await run(changed, staged=True, resume=True)
    assert (done.done, done.withheld, changed.embedding.texts - texts) == (1, 0, 1)
    assert await vectors(changed.ch) == {model: dict.fromkeys(TEXTS, 1) for model in (OLD.model, NEW.model)}
    assert (await changed.found("Ana automobile purchased", mode=SearchMode.VECTOR))[:1] == ["k1"]


@pytest.mark.parametrize("fault", ["width", "chunk"])
async def test_staged_vectors_that_are_not_whole_are_not_shown(changed: MemoryHarness, fault: str) -> None:
    await run_batches(changed, 1, staged=True)
    row = await changed.get("k3")
    assert row is not None
    vector = (0.5,) * (NEW.dim - 1 if fault == "width" else NEW.dim)
    chunk = EmbeddedChunk(changed.scope, row.identity, row.version, int(fault == "chunk"), 0, 9, vector)
    await EmbeddingRepository(changed.ch).insert(NEW.staged, [chunk])
    done = await run(changed, staged=True, resume=True)
    # What is of another width is made anew; a version that lacks a chunk looks done and holds everything back.
    assert done.withheld == (0 if fault == "width" else 1)
    assert (await run(changed, staged=True)).withheld == 0
    assert (await vectors(changed.ch))[NEW.model] == dict.fromkeys(TEXTS, 1)


async def test_every_other_column_is_kept(changed: MemoryHarness) -> None:
    row = await changed.get("k1")
    assert row is not None
    at = row.updated_at
    old = EmbeddedChunk(changed.scope, row.identity, row.version, 0, 0, 16, (1.0,) * 64, "superseded", at, "signed")
    await changed.ch.command("TRUNCATE TABLE memory_embeddings")
    await EmbeddingRepository(changed.ch).insert(OLD.model, [old])
    await run(changed)
    kept = await changed.ch.query(
        "SELECT status, invalid_at, attestation, version FROM memory_embeddings "
        "WHERE memory_key = 'k1' AND embedding_model = {m:String}",
        {"m": NEW.model},
    )
    assert kept.rows == [("superseded", at, "signed", row.version)]


async def test_texts_that_are_refused_together_are_embedded_apart(changed: MemoryHarness) -> None:
    class Narrow(FakeEmbedding):
        async def embed_many(self, texts: list[str]) -> list[EmbeddedText]:  # type: ignore[override]  # a list comes
            if len(texts) > 1:
                raise PayloadTooLarge("more than one")
            return await super().embed_many(texts)

    narrow = await memory_over(changed.ch, Narrow(CONCEPTS, dim=NEW.dim, model=NEW.model))
    assert (await run(narrow, batch_size=6)).done == 6


async def test_an_organisation_whose_calls_are_off_does_not_keep_the_others(changed: MemoryHarness) -> None:
    await changed.fill({"z": "garden roses"})
    other = Scope("zeta", "team")
    await changed.set("k", "garden roses", scope=other)
    await changed.ch.command("TRUNCATE TABLE memory_embeddings")

    class OffForAcme(FakeEmbedding):
        async def embed_many(self, texts: list[str]) -> list[EmbeddedText]:  # type: ignore[override]  # a list comes
            if len(texts) > 1:
                raise ModelCallsOff("off")
            return await super().embed_many(texts)

    off = await memory_over(changed.ch, OffForAcme(CONCEPTS, dim=NEW.dim, model=NEW.model))
    done = await run(off, batch_size=100)
    assert (done.total, done.done, done.failed) == (8, 1, 7)
    assert [(failure.scope.org, failure.reason) for failure in done.failures] == [("acme", "MODEL_CALLS_OFF")] * 7


async def test_a_refused_agent_keeps_neither_the_others_of_its_namespace_nor_its_own_from_the_next_run(
    changed: MemoryHarness,
) -> None:
    for number in range(4):
        await changed.set(f"z{number}", f"note {number}", actor="process:sa:okta:planner")
    await changed.ch.command("TRUNCATE TABLE memory_embeddings")
    embedding = AttributedEmbedding(dim=NEW.dim, model=NEW.model)
    embedding.refused["sa:okta:planner"] = ModelCallRefused("over its budget", retry_after_s=300)
    memory = await memory_over(changed.ch, embedding, model_calls=gate_of(AGENTS))
    done = await run(memory, batch_size=8)
    assert (done.total, done.done, done.failed) == (10, 6, 4)
    assert {(failure.key, failure.reason) for failure in done.failures} == {
        (f"z{number}", "MODEL_CALL_REFUSED") for number in range(4)
    }
    # The second batch holds only texts of the agent, and is not sent.
    assert embedding.refusals == ["sa:okta:planner"]
    assert [(org, subject, len(texts)) for org, subject, texts in embedding.calls] == [("acme", "test", 6)]
    embedding.refused.clear()
    assert (await run(memory, batch_size=8)).done == 4
    assert [subject for _, subject, _ in embedding.calls] == ["test", "sa:okta:planner"]


async def test_a_run_over_an_organisation_names_its_namespace_where_calls_name_their_agent(
    changed: MemoryHarness,
) -> None:
    memory = await memory_over(changed.ch, embedder(NEW), model_calls=gate_of(AGENTS))
    with pytest.raises(ModelCallUnattributed):
        await run(memory, org="acme")
    assert (await run(memory, org="acme", dry_run=True)).total == 6
    assert (await run(memory, org="acme", namespace="team")).done == 6


async def test_an_organisation_that_is_switched_off_is_left_out_and_refused_where_it_is_named(
    changed: MemoryHarness,
) -> None:
    await changed.set("k", "garden roses", scope=Scope("zeta", "team"))
    await changed.ch.command("TRUNCATE TABLE memory_embeddings")
    memory = await memory_over(changed.ch, embedder(NEW), model_calls=gate_of(NAMELESS, FakeSwitch("acme")))
    done = await run(memory)
    assert (done.total, done.done, done.failed) == (1, 1, 0)
    with pytest.raises(ModelCallsOff):
        await run(memory, org="acme")


async def test_a_provider_that_stays_away_ends_the_run_and_what_was_done_stays(changed: MemoryHarness) -> None:
    await run_batches(changed, 1)
    changed.embedding.refusal = ProviderFailed("away")
    hasty = reembedding_with(changed, changed.embedding, waits_s=[0.0])
    with pytest.raises(ProviderFailed):
        await run(changed, hasty)
    assert len((await vectors(changed.ch))[NEW.model]) == 2


async def test_a_model_that_changes_during_a_run_ends_it(changed: MemoryHarness) -> None:
    class Restarted(FakeEmbedding):
        async def embed_many(self, texts: object) -> list[EmbeddedText]:
            found = await super().embed_many(texts)  # type: ignore[arg-type]  # as it came
            self._served = replace(self._served, name="another")
            return found

    restarted = await memory_over(changed.ch, Restarted(CONCEPTS, dim=NEW.dim, model=NEW.model))
    with pytest.raises(Conflict):
        await run(restarted)
    assert NEW.model not in await vectors(changed.ch)


async def test_a_second_run_is_refused_at_once_and_told_who_runs_and_since_when(changed: MemoryHarness) -> None:
    first = changed.parts.reembedding
    async with aclosing(first.run(ReembedOptions(batch_size=2))) as progresses:
        await anext(progresses)
        second = reembedding_with(changed, changed.embedding, lease_wait_s=600)
        async with asyncio.timeout(10):
            with pytest.raises(Conflict) as caught:
                await run(changed, second)
        assert f"{first._leases.holder} since 2" in caught.value.message
        assert "\n" not in caught.value.message
        assert (await run(changed, second, dry_run=True)).total == 6
    assert (await run(changed, second)).done == 6


async def test_a_run_waits_for_the_worker_and_is_refused_where_that_does_not_end(changed: MemoryHarness) -> None:
    leases = Leases(changed.ch, "memory")
    second = reembedding_with(changed, changed.embedding, lease_wait_s=0)
    async with leases.held(LEASE, 60, wait_s=5):
        with pytest.raises(Conflict, match=leases.holder):
            await run(changed, second)
    assert (await run(changed, second)).done == 6


async def test_a_deleted_or_expired_memory_is_not_embedded(changed: MemoryHarness) -> None:
    await changed.delete("k1")
    await changed.ch.command("ALTER TABLE memory UPDATE expires_at = now64(3) - 1 WHERE memory_key = 'k2' "
                             "SETTINGS mutations_sync = 1")  # fmt: skip
    assert (await run(changed)).done == 4


@pytest.mark.parametrize(
    "options", [{"key_only": True, "staged": True}, {"collection": "c"}, {"collection": "c", "staged": True}], ids=str
)
async def test_what_cannot_be_done_here_is_refused(changed: MemoryHarness, options: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument):
        await run(changed, **options)


def test_the_database_may_not_call_a_provider_while_calls_must_name_whom_they_are_for() -> None:
    require_in_database_allowed([])
    with pytest.raises(InvalidArgument, match="LOOM_X"):
        require_in_database_allowed(["LOOM_X"])


async def test_a_table_of_vectors_that_no_run_covers_does_not_exist(clickhouse: ClickHouse) -> None:
    harness = await memory_over(clickhouse)
    for service, package in {
        "embedding": "loom_embedding",
        "gateway": "loom_gateway",
        "insights": "loom_insights",
    }.items():
        await migrate(clickhouse, service, package)
    rows = await clickhouse.query(
        "SELECT DISTINCT table FROM system.columns WHERE database = {d:String} AND name = 'embedding_model'"
        " AND table IN ("
        "SELECT table FROM system.columns WHERE database = {d:String} AND type = 'Array(Float32)')",
        {"d": clickhouse.database},
    )
    assert {table for (table,) in rows} == {table.name for table in harness.parts.reembedding.tables}


async def test_a_namespace_larger_than_a_range_is_embedded_to_its_end(
    changed: MemoryHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await changed.set("k1", "of a user", user_id="u1")
    await changed.set("k1", "of another", user_id="u2")
    await changed.ch.command("TRUNCATE TABLE memory_embeddings")
    monkeypatch.setattr(vector_tables.key_ranges, "__defaults__", (2,))
    assert (await run(changed, batch_size=1)).done == 8
