"""Conflicts and what settles them, restoring, inspecting, provenance and feedback, over the real engine."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio
from support.writes import Writes, module_writes, resolver_of

from loom_common.clickhouse.engine import EmbeddedEngine
from loom_common.errors import Conflict, InvalidArgument, ModelCallsOff, NotFound, ProviderFailed
from loom_common.write_policy import WritePolicy
from loom_memory.app.conflicts import Judgement
from loom_memory.app.llm import Completion
from loom_memory.domain.conflict import Mark, Resolution, State
from loom_memory.domain.memory import Filter, Identity, Stated
from loom_memory.store.conflicts import ConflictFilter
from loom_memory.store.signals import Signal

pytestmark = pytest.mark.asyncio(loop_scope="module")

OLD, NEW = datetime(2020, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(clickhouse_engine: EmbeddedEngine) -> AsyncIterator[Writes]:
    async with module_writes(clickhouse_engine) as found:
        yield found


@pytest.fixture
def writes(process: Writes) -> Writes:
    return process.elsewhere()


async def contradiction(writes: Writes, *, actor: str = "human:ana", user_id: str = "") -> Mark:
    """Stores a fact and what contradicts it, and returns the mark."""
    await writes.set("Ben lives in Utrecht.", key="home-before", event_time=OLD, actor=actor, user_id=user_id)
    await writes.set("Ben lives in Antwerp.", key="home-now", event_time=NEW, actor=actor, user_id=user_id)
    (mark,) = await writes.marks()
    return mark


async def settle(writes: Writes, mark: Mark, resolution: Resolution, value: str = "") -> Mark:
    done = await writes.parts.conflicts.settle(
        writes.scope, mark.conflict_id, Judgement(resolution, value, "because"), "human:bob"
    )
    return done.mark


async def ends(writes: Writes) -> dict[str, datetime | None]:
    return {key: (await writes.held(key)).invalid_at for key in ("home-before", "home-now")}


@pytest.mark.parametrize(
    ("resolution", "before", "now"),
    [
        (Resolution.KEEP_NEWER, NEW, None),
        (Resolution.KEEP_OLDER, None, NEW),
        (Resolution.KEEP_BOTH, None, None),
        (Resolution.MERGE, NEW, None),
    ],
)
async def test_a_conflict_is_settled_either_way_and_nothing_is_lost(
    writes: Writes, resolution: Resolution, before: datetime | None, now: datetime | None
) -> None:
    mark = await contradiction(writes)
    merged = "Ben moved from Utrecht to Antwerp." if resolution is Resolution.MERGE else ""
    settled = await settle(writes, mark, resolution, merged)
    assert (settled.state, settled.resolution, settled.resolved_by) == (State.RESOLVED, resolution.value, "human:bob")
    assert await ends(writes) == {"home-before": before, "home-now": now}
    newer = await writes.held("home-now")
    assert newer.content.value == (merged or "Ben lives in Antwerp.")
    assert (await writes.held("home-before")).content.value == "Ben lives in Utrecht."


async def test_a_settled_conflict_may_be_settled_another_way(writes: Writes) -> None:
    mark = await contradiction(writes)
    for resolution in (Resolution.KEEP_OLDER, Resolution.KEEP_BOTH, Resolution.KEEP_OLDER, Resolution.KEEP_NEWER):
        await settle(writes, mark, resolution)
    assert await ends(writes) == {"home-before": NEW, "home-now": None}


async def test_a_conflict_about_a_memory_that_was_written_since_is_stale(writes: Writes) -> None:
    mark = await contradiction(writes)
    await writes.set("Ben lives in Ghent.", key="home-now")
    with pytest.raises(Conflict):
        await settle(writes, mark, Resolution.KEEP_OLDER)
    assert [found.state for found in await writes.marks()] == [State.STALE]


async def test_who_may_not_see_a_conflict_may_not_settle_it(writes: Writes) -> None:
    mark = await contradiction(writes, user_id="u1")
    judgement = Judgement(Resolution.KEEP_BOTH)
    for conflict_id, visible in ((mark.conflict_id, Filter(user_id="u2")), ("none", Filter())):
        with pytest.raises(NotFound):
            await writes.parts.conflicts.settle(writes.scope, conflict_id, judgement, "human:x", visible=visible)
    page = await writes.parts.conflicts.page(writes.scope, ConflictFilter(user_id="u2"), page_size=5, page_token="")
    assert page.marks == []


@pytest.mark.parametrize(("resolution", "value"), [(Resolution.MERGE, ""), (Resolution.KEEP_BOTH, "text")])
async def test_only_a_merge_has_a_value(writes: Writes, resolution: Resolution, value: str) -> None:
    mark = await contradiction(writes)
    with pytest.raises(InvalidArgument):
        await settle(writes, mark, resolution, value)


async def test_conflicts_are_listed_in_pages_without_gap_or_repeat(writes: Writes) -> None:
    for year in range(5):
        await writes.set(f"The rent is {900 + year} euros.", event_time=OLD + timedelta(days=365 * year))
    seen: list[str] = []
    token = ""
    while True:
        wanted = ConflictFilter(states=(State.OPEN,))
        page = await writes.parts.conflicts.page(writes.scope, wanted, page_size=2, page_token=token)
        seen += [mark.conflict_id for mark in page.marks]
        token = page.next_page_token
        if not token:
            break
    assert len(seen) == len(set(seen)) == 4
    assert seen == sorted(seen, reverse=True)


async def test_a_write_that_was_interrupted_is_finished_by_the_sweep(writes: Writes) -> None:
    """The mark is there before the newer memory is, and before the older one is ended."""
    await writes.alone()
    real, ended = writes.parts.validity.end_all, []

    async def never(marks: object) -> None:
        ended.append(marks)

    writes.parts.validity.end_all = never  # type: ignore[assignment, method-assign]  # a process that dies here
    try:
        await contradiction(writes)
    finally:
        writes.parts.validity.end_all = real  # type: ignore[method-assign]
    assert await ends(writes) == {"home-before": None, "home-now": None}
    assert await writes.parts.validity.sweep(timedelta(0), 50) >= 1
    assert await ends(writes) == {"home-before": NEW, "home-now": None}
    assert [mark.state for mark in await writes.marks()] == [State.OPEN]
    assert await writes.parts.validity.sweep(timedelta(0), 50) == 0


async def test_the_resolver_judges_in_the_name_of_who_wrote_the_memory_that_holds(writes: Writes) -> None:
    await writes.alone()
    mark = await contradiction(writes, actor="process:sa:ci:planner", user_id="u1")
    writes.llm.rule = lambda asked: 'Sure:\n```json\n{"resolution": "keep_both", "value": "", "why": "two homes",}\n```'
    assert (await writes.judge())["keep_both"] == 1
    (asked,) = writes.llm.asked
    assert asked.attribution is not None
    assert (asked.attribution.subject, asked.attribution.namespace) == ("sa:ci:planner", writes.scope.namespace)
    assert "Ben lives in Utrecht." in asked.user
    (settled,) = await writes.marks()
    assert (settled.conflict_id, settled.resolution) == (mark.conflict_id, "keep_both")
    assert (settled.resolved_by, settled.note) == ("process:conflict-resolver", "two homes")
    (entry,) = writes.ledger.entries
    assert (entry.row.op, entry.row.org) == ("conflict_resolver", "acme")


@pytest.mark.parametrize(
    "answer",
    ["no idea", '{"resolution": "delete_both"}', '{"resolution": "merge", "value": ""}',
     '{"resolution": "merge", "value": "Ben has 7 homes."}', "\\ud800 {"],
)  # fmt: skip
async def test_an_answer_that_says_nothing_costs_an_attempt_and_changes_nothing(writes: Writes, answer: str) -> None:
    await writes.alone()
    await contradiction(writes)
    writes.llm.rule = lambda asked: answer
    assert (await writes.judge())["failed"] == 1
    (mark,) = await writes.marks()
    assert (mark.state, mark.attempts, mark.retry_at is not None) == (State.OPEN, 1, True)
    assert await ends(writes) == {"home-before": NEW, "home-now": None}
    assert "failed" not in await writes.judge()


async def test_a_provider_that_fails_costs_an_attempt_and_a_hold_costs_none(writes: Writes) -> None:
    await writes.alone()
    await contradiction(writes)
    writes.llm.rule = lambda asked: ProviderFailed("down")
    assert (await writes.judge())["failed"] == 1
    assert (await writes.marks())[0].attempts == 1
    held = writes.elsewhere()
    await contradiction(held, actor="human:held")
    held.llm.rule = lambda asked: Completion("echo", fake=True)
    assert (await held.judge())["held"] == 1
    assert [(mark.attempts, mark.retry_at is not None) for mark in await held.marks()] == [(0, True)]


async def test_a_resolver_that_is_killed_leaves_its_mark_to_the_next(writes: Writes) -> None:
    await writes.alone()
    await contradiction(writes)
    writes.llm.rule = lambda asked: '{"resolution": "keep_newer"}'
    writes.llm.started.clear()
    writes.llm.gate.clear()
    killed = asyncio.create_task(writes.leading.turn())
    async with asyncio.timeout(30):
        await writes.llm.started.wait()
    killed.cancel()
    with suppress(asyncio.CancelledError):
        await killed
    writes.llm.gate.set()
    assert [(mark.state, mark.attempts) for mark in await writes.marks()] == [(State.OPEN, 0)]
    assert (await writes.judge())["keep_newer"] == 1


async def test_an_organisation_that_is_switched_off_is_left_as_it_is(process: Writes) -> None:
    writes = process.elsewhere()
    await writes.alone()
    await contradiction(writes)
    writes.llm.rule = lambda asked: ModelCallsOff("off")
    counts = await writes.judge()
    assert (counts["held"], [mark.attempts for mark in await writes.marks()]) == (1, [0])
    assert "held" not in await writes.judge()
    resolver_of(writes)._holds._orgs.clear()  # the module's other tests have the same organisation


async def test_a_restored_deletion_is_there_again_with_its_content(writes: Writes) -> None:
    """A reversible delete is among what users ask for most."""
    await writes.set("first", key="note-of-day", tags=("a",))
    await writes.set("second", key="note-of-day", tags=("b",), stated=Stated(attestation="observed"))
    await writes.delete("note-of-day")
    identity = Identity("note-of-day")
    done = await writes.parts.restorer.restore(writes.scope, identity, "human:bob")
    memory = await writes.held("note-of-day")
    assert (done.restored_version, memory.content.value, memory.content.tags) == (2, "second", ("b",))
    assert (memory.revision, memory.actor, memory.attestation) == (3, "human:bob", "observed")
    older = await writes.parts.restorer.restore(writes.scope, identity, "human:bob", version=1, expected_version=3)
    assert (older.written.revision, (await writes.held("note-of-day")).content.value) == (4, "first")


async def test_what_cannot_be_restored_says_why(writes: Writes) -> None:
    identity = Identity("gone-note")
    restore = writes.parts.restorer.restore
    with pytest.raises(NotFound):
        await restore(writes.scope, identity, "human:bob")
    await writes.set("now forbidden", key="gone-note")
    with pytest.raises(InvalidArgument):
        await restore(writes.scope, identity, "human:bob")
    with pytest.raises(NotFound):
        await restore(writes.scope, identity, "human:bob", version=7)
    await writes.delete("gone-note")
    with pytest.raises(Conflict):
        await restore(writes.scope, identity, "human:bob", expected_version=1)
    writes.allow(WritePolicy(blocked_words=("forbidden",)))
    with pytest.raises(InvalidArgument):
        await restore(writes.scope, identity, "human:bob")


async def test_an_inspection_tells_all_that_is_known(writes: Writes) -> None:
    await contradiction(writes)
    await writes.set("Ben lives in Antwerp!", key="also-his-home", event_time=NEW)
    inspect = writes.parts.inspector.inspect
    await writes.parts.inspector.feedback(writes.scope, Identity("home-now"), Signal.WRONG, "human:bob")
    await writes.parts.inspector.feedback(writes.scope, Identity("home-now"), Signal.USEFUL, "human:bob")
    await writes.parts.inspector.feedback(writes.scope, Identity("home-now"), Signal.USEFUL, "human:eve")
    found = await inspect(writes.scope, Identity("home-now"))
    assert found is not None
    assert (found.versions, [mark.older.key for mark in found.conflicts]) == (1, ["home-before"])
    assert (found.signals.repeated, found.signals.useful, found.signals.wrong) == (1, 2, 0)
    assert [(each.model, each.chunks, each.dim, each.of_key) for each in found.vectors] == [("fake", 1, 256, True)]
    older = await inspect(writes.scope, Identity("home-before"))
    assert older is not None
    assert older.versions == 2
    assert await inspect(writes.scope, Identity("never")) is None
    with pytest.raises(NotFound):
        await writes.parts.inspector.feedback(writes.scope, Identity("never"), Signal.USEFUL, "human:bob")


async def test_signals_of_an_earlier_life_of_a_key_do_not_count(writes: Writes) -> None:
    await writes.set("first", key="reborn-note")
    await writes.parts.inspector.feedback(writes.scope, Identity("reborn-note"), Signal.WRONG, "human:bob")
    await writes.delete("reborn-note")
    await writes.set("second", key="reborn-note")
    found = await writes.parts.inspector.inspect(writes.scope, Identity("reborn-note"))
    assert found is not None
    assert found.signals.wrong == 0


async def test_provenance_goes_both_ways_and_never_to_another_user(writes: Writes) -> None:
    await writes.set("source one", key="source-one", user_id="u1", source="https://a.example/1", actor="human:bob")
    await writes.set("shared", key="shared-source")
    stated = Stated(derived_from=("source-one", "shared-source", "long-gone"))
    await writes.set("made of both", key="summary-note", user_id="u1", stated=stated)
    await writes.set("made of it too", key="foreign-note", user_id="u2", stated=Stated(derived_from=("source-one",)))
    provenance = writes.parts.inspector.provenance
    found = await provenance(writes.scope, Identity("summary-note", "u1"), Filter(user_id="u1"))
    assert found is not None
    assert [(each.identity.key, each.revision) for each in found.derived_from] == [
        ("source-one", 1),
        ("shared-source", 0),  # a token of u1 alone reads no memory of nobody
        ("long-gone", 0),
    ]
    back = await provenance(writes.scope, Identity("source-one", "u1"), Filter())
    assert back is not None
    assert (back.memory.content.source, back.first_actor) == ("https://a.example/1", "human:bob")
    assert [each.identity for each in back.derived] == [Identity("summary-note", "u1")]
