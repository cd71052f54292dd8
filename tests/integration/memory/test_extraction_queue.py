"""The queue of conversations, over the real engine: order, leases, holds, dead letters, and what a kill leaves."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest
from support.memory import NAMELESS, gate_of
from support.shared_database import emptied, shared_database

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse
from loom_common.clickhouse.engine import EmbeddedEngine
from loom_common.clock import FakeClock
from loom_common.errors import (
    BackendUnavailable,
    BudgetExhausted,
    Conflict,
    DeadlineExceeded,
    InvalidArgument,
    LoomError,
    ModelCallDeferred,
    ModelCallRefused,
    ModelCallsOff,
    ProviderFailed,
)
from loom_common.features import Feature
from loom_common.leases import Leases
from loom_common.ledger import FakeLedgerSink
from loom_common.model_calls.switch import FakeSwitch
from loom_memory.app.background import Background, Dead
from loom_memory.app.extract.facts import FactExtractor
from loom_memory.app.extract.remembering import Conversation, Remembered, Remembering
from loom_memory.app.extract.storing import ConversationStore, Filing
from loom_memory.app.extract.storing_fake import FakeWriter, Killed
from loom_memory.app.extract.working import ExtractionWork
from loom_memory.app.llm import Completion
from loom_memory.app.llm_fake import Asked, FakeLlm
from loom_memory.app.passes import Passes
from loom_memory.domain.conversation import Message
from loom_memory.domain.extractions import Extraction, State
from loom_memory.store.erasures import RUNNING, USER, ErasureRepository, Receipt
from loom_memory.store.erasures import Asked as Erased
from loom_memory.store.extractions import ExtractionRepository
from loom_memory.store.worker_passes import WorkerPassRepository
from loom_memory.workers.extraction import ExtractionWorker
from loom_memory.workers.leading import Leading

TABLES = ("extraction_queue", "worker_passes", "leases", "erasure_receipts", "erasure_work")
TEAM = Scope("acme", "team")
MINUTE = 60.0


def told(*facts: str) -> str:
    """Returns a model's answer."""
    return json.dumps({"facts": [{"fact": fact, "message": 1} for fact in facts]})


def echo(asked: Asked) -> str:
    """Answers with one fact, the whole of what was said."""
    return told(asked.user.rpartition("user: ")[2].partition("\n")[0])


@dataclass
class Rig:
    """The queue and its worker, as one process has them; a killed process is another over the same database."""

    ch: ClickHouse
    clock: FakeClock
    llm: FakeLlm
    writer: FakeWriter
    ledger: FakeLedgerSink
    switch: FakeSwitch
    slots: int = 4
    max_attempts: int = 3
    deadline_s: float = 30.0

    def __post_init__(self) -> None:
        self.repository = ExtractionRepository(self.ch)
        store = ConversationStore(self.writer)
        self.erasures = ErasureRepository(self.ch, self.clock)
        self.work = ExtractionWork(
            self.llm, FactExtractor(self.llm, ("judge",)), store, self.repository, self.erasures, self.clock
        )
        passes = WorkerPassRepository(self.ch)
        self.worker = ExtractionWorker(
            self.repository,
            self.work,
            Passes(Feature.EXTRACTION_WORKER, self.clock, self.ledger),
            gate_of(NAMELESS, self.switch),
            self.clock,
            slots=self.slots,
            deadline_s=self.deadline_s,
            max_attempts=self.max_attempts,
        )
        self.leases = Leases(self.ch, "memory")
        self.leading = Leading(self.worker, self.leases, passes, self.clock)
        self.remembering = Remembering(
            self.repository, self.work, store, self.clock, deadline_s=self.deadline_s, queued=self.leading.nudge
        )
        self.background = Background(
            (), self.leases, passes, self.repository, self.work, ended=tuple, nudge=self.leading.nudge, clock=self.clock
        )

    def another(self) -> "Rig":
        """Returns what the next process has; the killed one's lease is over."""
        return Rig(
            self.ch,
            self.clock,
            self.llm,
            self.writer,
            self.ledger,
            self.switch,
            self.slots,
            self.max_attempts,
            self.deadline_s,
        )

    async def give(
        self, text: str, *, scope: Scope = TEAM, actor: str = "human:ann", deferred: bool = True, **more: object
    ) -> Remembered:
        messages = [Message("user", text, said_at=self.clock.now())]
        conversation = Conversation(Filing(scope, actor), messages, deferred=deferred, **more)  # type: ignore[arg-type]
        return await self.remembering.remember(conversation)

    async def row(self, given: Remembered, scope: Scope = TEAM) -> Extraction:
        found = await self.repository.get(scope, given.extraction_id)
        assert found is not None
        return found

    def values(self, scope: Scope = TEAM) -> set[str]:
        return {content.value for (its, _), content in self.writer.kept.items() if its == scope}

    async def turn(self) -> None:
        """Lets the worker do a pass; an interrupted one is as good."""
        with suppress(BackendUnavailable):
            await self.leading.turn()


@pytest.fixture(scope="module")
def clickhouse_database(clickhouse_engine: EmbeddedEngine) -> Iterator[str]:
    """One database for all tests here: making the tables takes longer than any of them."""
    yield from shared_database(clickhouse_engine, "t_extraction_queue")


@pytest.fixture
async def rig(clickhouse: ClickHouse) -> Rig:
    await emptied(clickhouse, "memory", "loom_memory", TABLES)
    llm = FakeLlm()
    llm.rule = echo
    return Rig(clickhouse, FakeClock(), llm, FakeWriter(), FakeLedgerSink(), FakeSwitch())


async def test_a_deferred_conversation_is_extracted_for_who_gave_it(rig: Rig) -> None:
    given = await rig.give("Ann lives in Rome with her two cats and a dog")
    assert (given.state, given.reason) == ("pending", "deferred")
    await rig.turn()
    row = await rig.row(given)
    assert (row.state, row.counts.stored, row.payload) == (State.DONE, 1, "")
    assert rig.values() == {"Ann lives in Rome with her two cats and a dog"}
    assert set(rig.writer.actors.values()) == {"human:ann"}
    attribution = rig.llm.asked[0].attribution
    assert attribution is not None
    assert (attribution.org, attribution.namespace, attribution.subject) == ("acme", "team", "ann")
    # What it cost stands in the one row of the pass.
    (entry,) = rig.ledger.entries
    assert (entry.row.op, entry.row.org, entry.row.llm_call_count) == ("extraction_worker", "acme", 1)


async def test_the_same_conversation_again_adds_nothing_and_asks_nobody(rig: Rig) -> None:
    for _ in range(5):
        given = await rig.give("Ann lives in Rome with her two cats and a dog", deferred=False)
    assert (given.reason, given.counts.stored, given.counts.unchanged) == ("already_done", 0, 1)
    assert len(rig.llm.asked) == 1
    assert len(rig.writer.kept) == 1


async def test_each_namespace_and_each_writer_has_its_turn(rig: Rig) -> None:
    rig.slots = 2
    one = rig.another()
    for number in range(4):
        await one.give(f"Ann tells the many things that she has done on day {number}", actor="human:ann")
    await one.give("Bob tells of the one thing that he has done today", actor="human:bob")
    await one.give("Cy tells another team of the one thing that he has done", scope=Scope("acme", "other"))
    due = await one.repository.due(one.clock.now(), off=(), busy=(), most_each=9, limit=3)
    rows = [await one.repository.get(scope, name) for scope, name in due]
    assert {(row.scope.namespace, row.enqueued_by) for row in rows if row} == {
        ("team", "human:ann"),
        ("other", "human:ann"),
        ("team", "human:bob"),
    }


async def test_a_conversation_that_hangs_keeps_no_other_waiting(rig: Rig) -> None:
    others_asked = asyncio.Event()

    class Hanging(FakeLlm):
        async def complete(self, system: str, user: str, **more: object) -> Completion:  # type: ignore[override]
            if "poison" in user:
                await others_asked.wait()
            answer = await super().complete(system, user, **more)  # type: ignore[arg-type]  # as it is declared there
            if sum("films" in asked.user for asked in self.asked) == 6:
                others_asked.set()
            return answer

    llm = Hanging()
    llm.rule = echo
    one = replace(rig, llm=llm)
    for number in range(2):
        await one.give(f"poison number {number} that no model ever answers to anybody", actor="human:eve")
    for number in range(6):
        await one.give(f"Ann has seen {number} films in the cinema this year", actor="human:ann")
    async with asyncio.timeout(60):
        await one.leading.turn()
    assert len(one.writer.kept) == 8


async def test_an_attempt_that_fails_is_tried_again_later_and_then_given_up(rig: Rig) -> None:
    rig.llm.rule = lambda asked: ProviderFailed("It answers 500.")
    given = await rig.give("Ann lives in Rome with her two cats and a dog")
    for attempt in range(1, 4):
        await rig.turn()
        row = await rig.row(given)
        assert row.attempts == attempt
        await rig.turn()
        assert (await rig.row(given)).attempts == attempt, "it rests first"
        rig.clock.advance(60 * MINUTE)
    assert (row.state, row.reason) == (State.DEAD, "PROVIDER_FAILED")
    calls = len(rig.llm.asked)
    await rig.turn()
    assert len(rig.llm.asked) == calls

    (dead,) = await rig.background.dead(Dead(), 10)
    assert (dead.id, dead.attempts) == (given.extraction_id, 3)
    rig.llm.rule = echo
    assert await rig.background.retry(Dead(ids=[dead.id])) == 1
    await rig.turn()
    assert (await rig.row(given)).state is State.DONE
    assert await rig.background.dead(Dead(), 10) == []


async def test_a_pass_in_which_everything_fails_stops_after_a_few_calls(rig: Rig) -> None:
    rig.llm.rule = lambda asked: ProviderFailed("It answers 500.")
    for number in range(10):
        await rig.give(f"Ann has seen {number} films in the cinema this year", actor=f"human:{number}")
    with pytest.raises(BackendUnavailable):
        await rig.leading.turn()
    assert len(rig.llm.asked) < 10


async def test_a_conversation_that_breaks_the_code_is_given_up_and_the_others_are_done(rig: Rig) -> None:
    def rule(asked: Asked) -> str:
        if "poison" in asked.user:
            raise RuntimeError("a fault of ours")
        return echo(asked)

    rig.llm.rule = rule
    poison = await rig.give("poison in a conversation that nobody can read at all", actor="human:eve")
    good = await rig.give("Ann lives in Rome with her two cats and a dog")
    await rig.turn()
    assert (await rig.row(good)).state is State.DONE
    assert (await rig.row(poison)).reason == "INTERNAL"


async def test_garbage_is_asked_for_again_and_then_given_up_with_its_reason(rig: Rig) -> None:
    rig.max_attempts = 1
    one = rig.another()
    one.llm.rule = lambda asked: "I am sorry, I cannot help with that."
    given = await one.give("Ann lives in Rome with her two cats and a dog")
    await one.turn()
    row = await one.row(given)
    assert (row.state, row.reason, len(one.llm.asked)) == (State.DEAD, "unreadable", 2)


@pytest.mark.parametrize(
    ("error", "rest_s"),
    [
        (ModelCallRefused("no", detail={}), 300.0),
        (ModelCallDeferred("later", retry_after_s=45), 45.0),
        (BudgetExhausted("spent", retry_after_s=40_000), 900.0),
    ],
    ids=["refused", "asked to wait", "spent"],
)
async def test_what_is_held_spends_no_attempt_and_waits_for_the_end_of_the_hold(
    rig: Rig, error: LoomError, rest_s: float
) -> None:
    rig.llm.rule = lambda asked: error
    given = await rig.give("Ann lives in Rome with her two cats and a dog")
    await rig.turn()
    row = await rig.row(given)
    assert (row.shown_state, row.state, row.attempts, row.reason) == ("held", State.RUNNING, 0, error.reason.value)
    assert row.leased_until == rig.clock.now() + timedelta(seconds=rest_s)
    rig.llm.rule = echo
    await rig.turn()
    assert (await rig.row(given)).shown_state == "held"
    # The next process knows of the hold too, and takes the work up when it is over.
    rig.clock.advance(rest_s + 1)
    await rig.another().turn()
    assert (await rig.row(given)).state is State.DONE


async def test_a_held_writers_other_work_takes_no_place_in_the_queue(rig: Rig) -> None:
    def rule(asked: Asked) -> str | LoomError:
        subject = asked.attribution.subject if asked.attribution else ""
        return ModelCallRefused("no", detail={}) if subject == "eve" else echo(asked)

    rig.llm.rule = rule
    for number in range(8):
        await rig.give(f"Eve has written {number} letters to her friends abroad", actor="human:eve")
    rig.clock.advance(1)
    given = await rig.give("Ann lives in Rome with her two cats and a dog", actor="human:ann")
    await rig.turn()
    assert (await rig.row(given)).state is State.DONE
    refused = [asked for asked in rig.llm.asked if asked.attribution and asked.attribution.subject == "eve"]
    assert len(refused) <= rig.slots // 2
    due = await rig.repository.due(rig.clock.now(), off=(), busy=(), most_each=9, limit=9)
    assert due == []


async def test_an_organisation_that_is_switched_off_waits_and_is_never_asked_for(rig: Rig) -> None:
    given = await rig.give("Ann lives in Rome with her two cats and a dog")
    rig.switch.orgs_off.add("acme")
    await rig.turn()
    assert rig.llm.asked == []
    assert (await rig.row(given)).attempts == 0


async def test_an_organisation_that_is_found_off_holds_all_of_its_work(rig: Rig) -> None:
    rig.llm.rule = lambda asked: ModelCallsOff("off")
    given = [await rig.give(f"Ann has seen {number} films this year", actor=f"human:{number}") for number in range(9)]
    await rig.turn()
    assert len(rig.llm.asked) <= rig.slots
    rows = [await rig.row(one) for one in given]
    assert {row.attempts for row in rows} == {0}


@pytest.mark.parametrize(
    "step", ["before it began", "while the model answered", "between two facts", "before it ended"]
)
async def test_a_kill_at_any_step_is_made_good_by_the_next_process(rig: Rig, step: str) -> None:
    facts = ["Ann lives in Rome.", "Ann has two cats.", "Ann works at night."]
    rig.llm.rule = lambda asked: told(*facts)
    given = await rig.give("Ann lives in Rome with her two cats and works at night")
    if step == "before it began":
        row = await rig.row(given)
        await rig.work.put(row.leased(rig.clock.now(), 60))
    elif step == "while the model answered":
        rig.llm.gate.clear()
        turn = asyncio.create_task(rig.leading.turn())
        await rig.llm.started.wait()
        turn.cancel()
        await asyncio.gather(turn, return_exceptions=True)
        rig.llm.gate.set()
    else:
        rig.writer.crash_after = 1 if step == "between two facts" else 3
        if step == "before it ended":
            row = await rig.row(given)
            leased = await rig.work.put(row.leased(rig.clock.now(), 60))
            await rig.work.work(leased)
        else:
            with pytest.raises(Killed):
                await rig.work.work(await rig.row(given))
            row = await rig.row(given)
            await rig.work.put(row.leased(rig.clock.now(), 60))
        rig.writer.crash_after = None
    rig.clock.advance(10 * MINUTE)
    await rig.another().turn()
    assert (await rig.row(given)).state is State.DONE
    assert rig.values() == set(facts)
    assert len(rig.writer.kept) == 3


async def test_work_that_takes_its_process_with_it_is_given_up(rig: Rig) -> None:
    given = await rig.give("Ann lives in Rome with her two cats and a dog")
    for _ in range(rig.max_attempts):
        await rig.work.put((await rig.row(given)).leased(rig.clock.now(), 60))
        rig.clock.advance(10 * MINUTE)
    await rig.turn()
    row = await rig.row(given)
    assert (row.state, row.reason, rig.llm.asked) == (State.DEAD, "INTERNAL", [])


async def test_an_extraction_at_once_tells_its_error_and_works_when_it_is_sent_again(rig: Rig) -> None:
    rig.llm.script(ProviderFailed("It answers 500."))
    with pytest.raises(ProviderFailed):
        await rig.give("Ann lives in Rome with her two cats and a dog", deferred=False)
    rig.clock.advance(60 * MINUTE)
    await rig.turn()
    assert rig.values() == set(), "nobody else tries what its caller knows to have failed"
    given = await rig.give("Ann lives in Rome with her two cats and a dog", deferred=False)
    assert (given.state, given.counts.stored) == ("done", 1)


async def test_what_was_deferred_stays_in_the_queue_when_it_fails_at_once(rig: Rig) -> None:
    value = "Ann lives in Rome with her two cats and a dog"
    await rig.give(value)
    rig.llm.script(ProviderFailed("It answers 500."))
    with pytest.raises(ProviderFailed):
        await rig.give(value, deferred=False)
    rig.clock.advance(60 * MINUTE)
    await rig.turn()
    assert rig.values() == {value}


async def test_a_model_that_hangs_ends_with_the_deadline_and_its_work_is_tried_again(rig: Rig) -> None:
    one = replace(rig, deadline_s=0.2)
    one.llm.gate.clear()
    with pytest.raises(DeadlineExceeded):
        await one.give("Ann lives in Rome with her two cats and a dog", deferred=False)
    given = await one.give("Bob lives in Oslo with his two cats and a dog", actor="human:bob")
    await one.turn()
    row = await one.row(given)
    assert (row.state, row.attempts, row.reason) == (State.PENDING, 1, "DEADLINE_EXCEEDED")
    one.llm.gate.set()
    one.clock.advance(10 * MINUTE)
    await one.turn()
    assert (await one.row(given)).state is State.DONE


async def test_every_part_of_a_long_conversation_is_read_once(rig: Rig) -> None:
    messages = [
        Message("user", f"On day {number} Ann wrote a long letter. " + "It was about many things. " * 20)
        for number in range(120)
    ]
    rig.llm.rule = lambda asked: told(asked.user.partition("On day ")[2].partition(".")[0])
    given = await rig.remembering.remember(Conversation(Filing(TEAM, "human:ann"), messages))
    characters = sum(len(message.content) for message in messages)
    assert len(rig.llm.asked) <= characters // 24_000 + 2
    assert given.state == "done"


async def test_a_keyless_deployment_keeps_the_messages_and_says_that_nothing_was_extracted(rig: Rig) -> None:
    rig.llm.fake = True
    given = await rig.give("Ann lives in Rome with her two cats and a dog", deferred=False)
    assert (given.counts.extracted, given.counts.stored, given.reason, given.model) == (0, 1, "no_model", "")
    assert "OPENAI_API_KEY" in given.message
    assert rig.llm.asked == []
    # Once there is a model, the same conversation has its facts extracted.
    rig.llm.fake = False
    again = await rig.give("Ann lives in Rome with her two cats and a dog", deferred=False)
    assert (again.counts.extracted, again.reason) == (1, "")


async def test_a_question_stores_nothing_and_says_so(rig: Rig) -> None:
    rig.llm.rule = lambda asked: '{"facts": []}'
    given = await rig.give("How do I cook rice?", deferred=False)
    assert (given.counts.stored, given.reason) == (0, "no_facts")
    assert given.message


async def test_what_the_gates_refuse_is_named_with_its_reason(rig: Rig) -> None:
    rig.llm.rule = lambda asked: told("The password is hunter2.", "Ann lives in Rome.")
    rig.writer.refused["The password is hunter2."] = InvalidArgument.of("value", "holds a secret")
    given = await rig.give("Ann lives in Rome with her two cats and the password", deferred=False)
    assert (given.counts.stored, given.counts.refused) == (1, 1)
    assert [item.reason for item in given.items] == ["INVALID_ARGUMENT", ""]


async def test_verbatim_stores_each_message_of_every_role_once(rig: Rig) -> None:
    messages = [
        Message("user", "Hello", "Ann"),
        Message("assistant", "Hello, how can I help?"),
        Message("user", "Hello", "Ann"),
    ]
    conversation = Conversation(Filing(TEAM, "human:ann", session_id="s"), messages, verbatim=True)
    given = await rig.remembering.remember(conversation)
    again = await rig.remembering.remember(conversation)
    assert (given.counts.stored, again.counts.stored, again.reason) == (3, 0, "unchanged")
    speakers = [content.speaker for content in rig.writer.kept.values()]
    assert speakers == ["Ann", "assistant", "Ann"]
    assert rig.llm.asked == []


async def test_texts_of_what_is_done_leave_the_queue(rig: Rig) -> None:
    await rig.give("Ann lives in Rome with her two cats and a dog")
    await rig.turn()
    await rig.repository.scrub()
    assert (await rig.ch.query("SELECT count() FROM extraction_queue WHERE payload != ''")).scalar() == 0


async def erasure_began(rig: Rig, user_id: str) -> None:
    """Begins to erase a user, as another process may at any time."""
    at = rig.clock.now() + timedelta(milliseconds=1)
    receipt = Receipt("acme", "e", "team", USER, "digest", "human:root", RUNNING, 0, "its turn", (), at)
    await rig.erasures.begin(receipt, Asked(user_id=user_id), ())


@pytest.mark.parametrize("deferred", [True, False])
@pytest.mark.parametrize("is_removed", [True, False])
async def test_what_is_erased_while_a_model_reads_it_is_neither_stored_nor_queued_again(
    rig: Rig, deferred: bool, is_removed: bool
) -> None:
    rig.llm.gate.clear()
    filing = Filing(TEAM, "human:ann", user_id="ann")
    messages = [Message("user", "Ann is ill.", said_at=rig.clock.now())]
    given = asyncio.create_task(rig.remembering.remember(Conversation(filing, messages, deferred=deferred)))
    if deferred:
        await given
        given = asyncio.create_task(rig.turn())
    async with asyncio.timeout(10):
        await rig.llm.started.wait()
    at = rig.clock.now() + timedelta(milliseconds=1)
    receipt = Receipt("acme", "e", "team", USER, "digest", "human:root", RUNNING, 0, "its turn", (), at)
    await rig.erasures.begin(receipt, Erased(user_id="ann"), ())
    if is_removed:
        await rig.ch.command("TRUNCATE TABLE extraction_queue")
    rows = (await rig.ch.query("SELECT count() FROM extraction_queue")).scalar()
    rig.llm.gate.set()
    with suppress(Conflict):
        await given
    assert rig.values() == set()
    assert (await rig.ch.query("SELECT count() FROM extraction_queue")).scalar() == rows
