"""Conversations over the real engine."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.memory import NAMELESS, MemoryHarness, gate_of, memory_over
from support.shared_database import emptied, shared_database

from loom.memory.v1 import conversation_pb2 as pb
from loom_common.auth.claims import Claims, NamespaceGrant, ReadScope, Role
from loom_common.call import Call, Scope, bind
from loom_common.clickhouse import ClickHouse
from loom_common.clickhouse.engine import EmbeddedEngine
from loom_common.clock import FakeClock
from loom_common.errors import AuthInsufficient, InvalidArgument, ModelCallRefused
from loom_common.leases import LeaseLost, Leases
from loom_common.ledger import FakeLedgerSink
from loom_memory.app.llm_fake import FakeLlm
from loom_memory.app.owned_items import own_user_id
from loom_memory.app.passes import Passes
from loom_memory.conversations.api.conversation import ConversationServicer
from loom_memory.conversations.app import search as search_module
from loom_memory.conversations.app.conversations import Appended, Appending, Outcome, Said
from loom_memory.conversations.app.search import ConversationQuery
from loom_memory.conversations.app.titles import Titles
from loom_memory.conversations.domain.conversations import Conversation, TitledBy
from loom_memory.conversations.store.conversations import ConversationRepository

TABLES = (
    "memory", "memory_versions", "memory_embeddings", "conversations", "conversation_turns", "item_vectors",
    "worker_passes", "leases",
)  # fmt: skip
TEAM, OTHER = Scope("acme", "team"), Scope("acme", "other")
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def clickhouse_database(clickhouse_engine: EmbeddedEngine) -> Iterator[str]:
    """One database for all tests here."""
    yield from shared_database(clickhouse_engine, "t_conversations")


@pytest.fixture
async def memory(clickhouse: ClickHouse) -> MemoryHarness:
    await emptied(clickhouse, "memory", "loom_memory", TABLES)
    return await memory_over(clickhouse)


async def append(
    memory: MemoryHarness, name: str, *turns: Said | str, scope: Scope = TEAM, **more: Any
) -> tuple[Conversation, list[Appended]]:
    said = [turn if isinstance(turn, Said) else Said(turn, id=turn) for turn in turns]
    return await memory.parts.conversations.conversations.append(scope, Appending(name, said, "human:ann", **more))


async def texts(memory: MemoryHarness, name: str, scope: Scope = TEAM) -> list[str]:
    found = await memory.parts.conversations.conversations.get(scope, name, 0, 500)
    return [] if found is None else [turn.text for turn in found[1]]


async def found(memory: MemoryHarness, text: str, scope: Scope = TEAM, **more: Any) -> list[str]:
    findings = await memory.parts.conversations.search.search(scope, ConversationQuery(text, **more))
    return [hit.text for hit in findings.hits]


def of_token(scope: ReadScope, **more: Any) -> Call:
    held = Claims(
        sub="sa:bot", org="acme", namespaces=(NamespaceGrant("team", Role.WRITER),), jti="j", iat=0, exp=1,
        read_scope=scope, **more,
    )  # fmt: skip
    return Call(claims=held)


async def test_a_turn_is_stored_once_and_one_that_says_something_else_under_its_name_is_refused(
    memory: MemoryHarness,
) -> None:
    first, results = await append(memory, "c", Said("hello", id="1", author="Ann"), Said("hi", id="2", author="Bo"))
    assert [one.outcome for one in results] == [Outcome.STORED, Outcome.STORED]
    again, results = await append(
        memory, "c", Said("hello", id="1", author="Ann"), Said("bye", id="2"), Said("so", id="3"), Said(" ", id="4")
    )
    assert [(one.outcome, one.index) for one in results] == [
        (Outcome.REPEATED, 1), (Outcome.REFUSED, 2), (Outcome.STORED, 3), (Outcome.REFUSED, 0),
    ]  # fmt: skip
    assert (first.turns, again.turns) == (2, 3)
    assert await texts(memory, "c") == ["hello", "hi", "so"]
    assert (again.title, again.titled_by) == ("hello", TitledBy.FIRST_TURN)


async def test_turns_without_a_name_are_one_where_their_time_is_the_same_and_two_where_none_is_told(
    memory: MemoryHarness,
) -> None:
    for _ in range(2):
        await append(memory, "c", Said("yes", at=NOON), Said("yes"))
    assert await texts(memory, "c") == ["yes"] * 3


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4), min_size=1, max_size=4), st.uuids())
async def test_whatever_is_sent_again_and_at_once_each_turn_is_there_once(
    memory: MemoryHarness, calls: list[list[int]], name: object
) -> None:
    await asyncio.gather(*(append(memory, str(name), *(f"turn {n}" for n in call)) for call in calls))
    stored = await texts(memory, str(name))
    assert sorted(stored) == sorted({f"turn {n}" for call in calls for n in call})
    one = await memory.parts.conversations.conversations.get(TEAM, str(name), 0, 1)
    assert one is not None
    assert one[0].turns == len(stored)


async def test_turns_are_found_by_meaning_and_by_words_whoever_said_them(memory: MemoryHarness) -> None:
    await append(memory, "a", Said("the automobile is red", id="1", author="Ann"), "we met on Monday")
    await append(memory, "b", Said("ticket ZX-4417 is open", id="1", author="Bo"))
    assert await found(memory, "car") == ["the automobile is red"]
    assert await found(memory, "ZX-4417") == ["ticket ZX-4417 is open"]
    assert await found(memory, "car", author="Bo") == []
    assert await found(memory, "car", author="Ann") == ["the automobile is red"]
    assert await found(memory, "ZX-4417", conversation_id="a") == []
    nothing = await memory.parts.conversations.search.search(TEAM, ConversationQuery("quantum chromodynamics"))
    assert nothing.hits == ()
    assert nothing.abstain_code in ("no_match", "below_floor")
    with pytest.raises(InvalidArgument):
        await found(memory, " ")


async def test_one_conversation_is_searched_by_meaning_however_much_nearer_others_are(
    memory: MemoryHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_module, "_POOL", 1)
    for number in range(12):
        await append(memory, f"other-{number}", f"the car does not start {number}")
    await append(memory, "mine", "that vehicle is broken")
    assert await found(memory, "car does not start", conversation_id="mine", top_k=1, min_similarity=0.1) == [
        "that vehicle is broken"
    ]


async def test_a_long_turn_is_found_by_its_end(memory: MemoryHarness) -> None:
    filler = "plain words follow. " * 200
    await append(memory, "long", Said(filler[: 5 * 780] + " " * 700 + "the automobile broke down", id="1"))
    [hit] = (await memory.parts.conversations.search.search(TEAM, ConversationQuery("car broke down"))).hits
    assert hit.text.endswith("the automobile broke down")
    assert hit.similarity is not None
    assert hit.similarity > 0.5, "of the last passage, not of the first"


async def test_what_is_deleted_is_gone_at_once_and_does_not_come_back_with_the_name(memory: MemoryHarness) -> None:
    conversations = memory.parts.conversations.conversations
    await append(memory, "c", "the automobile is red")
    assert await conversations.delete(TEAM, "c", "human:ann")
    assert await texts(memory, "c") == []
    assert await found(memory, "car") == []
    assert not await conversations.delete(TEAM, "c", "human:ann")
    await append(memory, "c", "the weather is fine")
    assert await texts(memory, "c") == ["the weather is fine"]
    assert await found(memory, "automobile") == []


async def test_a_deletion_that_was_killed_after_its_first_row_shows_nothing_of_before(
    memory: MemoryHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await append(memory, "c", "the automobile is red")

    async def killed(*_: object) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(ConversationRepository, "of_every_life", killed)
    with pytest.raises(asyncio.CancelledError):
        await memory.parts.conversations.conversations.delete(TEAM, "c", "human:ann")
    monkeypatch.undo()
    await append(memory, "c", "the weather is fine")
    assert await texts(memory, "c") == ["the weather is fine"]
    assert await found(memory, "car") == []


async def test_an_append_that_was_killed_is_finished_by_the_same_call(
    memory: MemoryHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def killed(*_: object, **__: object) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(ConversationRepository, "put_turns", killed)
    with pytest.raises(asyncio.CancelledError):
        await append(memory, "c", "one", "two")
    monkeypatch.undo()
    assert await found(memory, "one two") == []
    after, _ = await append(memory, "c", "one", "two")
    assert await texts(memory, "c") == ["one", "two"]
    assert (after.turns, after.title) == (2, "one")


async def test_lists_have_no_gap_and_the_newest_first(memory: MemoryHarness) -> None:
    for number in range(5):
        await append(memory, f"c{number}", "hello", user_id="ann" if number % 2 else "bo")
    conversations = memory.parts.conversations.conversations
    seen: list[str] = []
    behind: tuple[datetime, str] | None = None
    while page := await conversations.page(TEAM, "", "", "", behind, 2):
        seen += [one.id for one in page]
        behind = page[-1].updated_at, page[-1].id
    assert seen == ["c4", "c3", "c2", "c1", "c0"]
    assert [one.id for one in await conversations.page(TEAM, "ann", "", "", None, 9)] == ["c3", "c1"]


async def test_conversations_are_their_namespaces_and_a_narrow_token_reads_its_own_users_alone(
    memory: MemoryHarness,
) -> None:
    await append(memory, "mine", "the automobile is red", user_id="ann")
    await append(memory, "theirs", "the automobile is blue", user_id="bo")
    assert await found(memory, "car", scope=OTHER) == []
    assert await texts(memory, "mine", scope=OTHER) == []
    assert await found(memory, "car", scope=Scope("globex", "team")) == []
    with bind(of_token(ReadScope.OWN_USER, user_id="ann")):
        assert await found(memory, "car") == ["the automobile is red"]
        assert await texts(memory, "theirs") == []
        assert not await memory.parts.conversations.conversations.delete(TEAM, "theirs", "human:ann")
        with pytest.raises(AuthInsufficient):
            own_user_id("bo")
    with bind(of_token(ReadScope.OWN_SESSION, user_id="ann", session_id="s")):
        assert await found(memory, "car") == []
    with pytest.raises(InvalidArgument):
        await append(memory, "mine", "more", user_id="bo")


class Lost:
    """A lease that another process took."""

    async def check(self) -> None:
        raise LeaseLost("taken")


async def titles_over(memory: MemoryHarness, llm: FakeLlm, clock: FakeClock) -> Titles:
    rows = ConversationRepository(memory.ch)
    passes = Passes(Titles.feature, clock, FakeLedgerSink())
    return Titles(rows, memory.parts.conversations.conversations, llm, passes, gate_of(NAMELESS), clock)


async def titles(memory: MemoryHarness, names: Sequence[str]) -> list[tuple[str, TitledBy]]:
    held = [await memory.parts.conversations.conversations.get(TEAM, name, 0, 1) for name in names]
    return [(one[0].title, one[0].titled_by) for one in held if one is not None]


async def test_a_model_titles_what_no_caller_did_and_a_killed_pass_is_made_again(memory: MemoryHarness) -> None:
    clock, llm = FakeClock(NOON), FakeLlm()
    await append(memory, "a", "hello there", "how do I export?")
    await append(memory, "b", "hello there", "how do I import?", title="Imports")
    await append(memory, "short", "only this")
    worker = await titles_over(memory, llm, clock)
    async with Leases(memory.ch, "memory").taken("worker.test", 60) as lease:
        assert lease is not None
        llm.script('"Exporting data"', '"Exporting data"')
        assert await worker.has_work()
        with pytest.raises(LeaseLost):
            await worker.run_pass(Lost())  # type: ignore[arg-type]  # as much of a lease as it uses
        assert (await titles(memory, ["a"]))[0][1] is TitledBy.FIRST_TURN
        assert await worker.run_pass(lease) == {"titled": 1}
        assert not await worker.has_work()
    assert await titles(memory, ["a", "b", "short"]) == [
        ("Exporting data", TitledBy.MODEL), ("Imports", TitledBy.CALLER), ("only this", TitledBy.FIRST_TURN),
    ]  # fmt: skip


async def test_a_title_whose_calls_are_held_waits_and_a_deleted_conversation_gets_none(memory: MemoryHarness) -> None:
    clock, llm = FakeClock(NOON), FakeLlm()
    one, _ = await append(memory, "a", "hello there", "how do I export?")
    await append(memory, "a", "hello there", "how do I import?", scope=Scope("globex", "team"))
    worker = await titles_over(memory, llm, clock)
    async with Leases(memory.ch, "memory").taken("worker.test", 60) as lease:
        assert lease is not None
        llm.script(ModelCallRefused("not now"), "Imports")
        assert await worker.run_pass(lease) == {"held": 1, "titled": 1}, "another's of the same name does not wait"
        assert not await worker.has_work()
        clock.advance(61)
        assert await worker.has_work()
    await memory.parts.conversations.conversations.delete(TEAM, "a", "human:ann")
    assert not await memory.parts.conversations.conversations.retitle(TEAM, "a", "x", one)
    assert not await memory.parts.conversations.conversations.retitle(TEAM, "a", "x", replace(one, life=1))


async def test_a_turn_names_the_memories_that_were_taken_from_it(memory: MemoryHarness) -> None:
    await append(memory, "c", "Ann likes tea", "it rains")
    await append(memory, "c2", "Ann likes tea")
    for key, source in (("tea", "conversation:c message:Ann likes tea"), ("rain", "conversation:c"), ("other", "x")):
        await memory.set(key, f"what {key} says", source=source)
    await memory.set("far", "what another says", source="conversation:c2 message:1")
    found = await memory.parts.conversations.conversations.memories(TEAM, "c", 10)
    assert [(identity.key, turn_id) for identity, turn_id in found] == [("rain", ""), ("tea", "Ann likes tea")]
    with bind(of_token(ReadScope.OWN_USER, user_id="ann")):
        assert await memory.parts.conversations.conversations.memories(TEAM, "c", 10) == []


async def test_a_call_whose_turns_are_all_refused_begins_no_conversation(memory: MemoryHarness) -> None:
    _, results = await append(memory, "empty", " ", Said("x", id="\0"))
    assert [one.outcome for one in results] == [Outcome.REFUSED] * 2
    assert await memory.parts.conversations.conversations.get(TEAM, "empty", 0, 1) is None


async def test_pages_of_conversations_and_of_turns_go_on_where_the_one_before_ended(memory: MemoryHarness) -> None:
    parts = memory.parts.conversations
    servicer = ConversationServicer(parts.conversations, parts.search, parts.repeats)
    for number in range(3):
        await append(memory, f"c{number}", *(f"turn {turn}" for turn in range(3)))
    context: Any = None  # neither method looks at gRPC's own view
    with bind(Call(scope=TEAM)):
        listed, token = [], ""
        while len(listed) < 3:
            page = await servicer.ListConversations(pb.ListConversationsRequest(page_size=2, page_token=token), context)
            listed += [one.conversation_id for one in page.conversations]
            token = page.next_page_token
        assert (listed, token) == (["c2", "c1", "c0"], "")
        first = await servicer.GetConversation(pb.GetConversationRequest(conversation_id="c1", page_size=2), context)
        rest = pb.GetConversationRequest(conversation_id="c1", page_token=first.next_page_token)
        assert [turn.text for turn in first.turns] == ["turn 0", "turn 1"]
        assert [turn.text for turn in (await servicer.GetConversation(rest, context)).turns] == ["turn 2"]
        other = pb.GetConversationRequest(conversation_id="c2", page_token=first.next_page_token)
        with pytest.raises(InvalidArgument):
            await servicer.GetConversation(other, context)
