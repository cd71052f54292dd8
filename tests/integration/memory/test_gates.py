"""What a write stores, refuses, counts or ends, over the real engine."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio
from support.writes import Writes, module_writes, stored

from loom_common.clickhouse.engine import EmbeddedEngine
from loom_common.errors import Conflict, InvalidArgument, ProviderFailed
from loom_common.write_policy import Treatment, WritePolicy
from loom_memory.app.drafts import BLACKLISTED, DUPLICATE, SENSITIVE, UNCHANGED
from loom_memory.domain.conflict import State
from loom_memory.domain.memory import Filter, Identity, Stated
from loom_memory.store.copies import VersionVectors
from loom_memory.store.signals import SignalRepository

OLD, NEW = datetime(2020, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC)


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(clickhouse_engine: EmbeddedEngine) -> AsyncIterator[Writes]:
    async with module_writes(clickhouse_engine) as found:
        yield found


@pytest.fixture
def writes(process: Writes) -> Writes:
    return process.elsewhere()


async def repeated(writes: Writes, key: str) -> int:
    memory = await writes.held(key)
    counts = await SignalRepository(writes.ch).counts(writes.scope, [memory.identity], memory.created_at)
    return counts[memory.identity].repeated if counts else 0


async def test_a_blacklisted_word_stores_nothing_and_says_why(writes: Writes) -> None:
    writes.allow(WritePolicy(blocked_words=("Project Falcon",), blocked_patterns=(r"\bZX-\d{4}\b",)))
    for value in ("about PROJECT   falcon", "part zx", "part ZX-4417"):
        written = await writes.set(value, key="secret-plan")
        refused = value != "part zx"
        assert written.stored is not refused
        assert (written.reason, bool(written.message)) == ((BLACKLISTED, True) if refused else ("", False))
    assert (await writes.held("secret-plan")).content.value == "part zx"


async def test_a_word_hidden_in_a_tag_or_a_key_is_found_too(writes: Writes) -> None:
    writes.allow(WritePolicy(blocked_words=("falcon",)))
    outcomes = stored(
        await writes.set_many(
            [
                writes.draft("one", "k-falcon"),
                writes.draft("two", tags=("fal\u200bcon",)),
                writes.draft("falconry three"),
            ]
        )
    )
    assert [outcome.reason for outcome in outcomes] == [BLACKLISTED, BLACKLISTED, ""]


@pytest.mark.parametrize(
    ("treatment", "stored_value", "reason"),
    [
        (Treatment.OFF, "write to ana@acme.io today", ""),
        (Treatment.MARK, "write to ana@acme.io today", ""),
        (Treatment.REDACT, "write to [email_address] today", ""),
        (Treatment.BLOCK, None, SENSITIVE),
    ],
)
async def test_what_is_sensitive_is_treated_as_the_namespace_says(
    writes: Writes, treatment: Treatment, stored_value: str | None, reason: str
) -> None:
    writes.allow(WritePolicy(personal=treatment))
    written = await writes.set("write to ana@acme.io today", key="contact")
    memory = await writes.get("contact")
    assert (memory.content.value if memory else None, written.reason) == (stored_value, reason)
    assert written.found.redacted is (treatment is Treatment.REDACT)
    if memory is not None and treatment is not Treatment.OFF:
        assert (memory.sensitivity, memory.sensitivity_found) == ("personal", ("email_address",))
        assert memory.recogniser.startswith("loom-")


async def test_a_redacted_text_is_never_in_its_own_key(writes: Writes) -> None:
    writes.allow(WritePolicy(secrets=Treatment.REDACT))
    one = await writes.set("the key is AKIAIOSFODNN7EXAMPLE")
    other = await writes.set("the key is AKIAIOSFODNN7EXAMPLF")
    assert one.identity == other.identity
    assert (other.stored, other.reason) == (False, UNCHANGED)


async def test_a_key_that_cannot_be_redacted_is_refused(writes: Writes) -> None:
    writes.allow(WritePolicy(personal=Treatment.REDACT))
    assert (await writes.set("anything", key="mail/ana@acme.io")).reason == SENSITIVE


async def test_the_stronger_of_stated_and_found_sensitivity_counts(writes: Writes) -> None:
    await writes.set("nothing to see", key="stated", stated=Stated(sensitivity="secret"))
    await writes.set("write to ana@acme.io", key="found", stated=Stated(sensitivity="secret"))
    await writes.set("token ghp_" + "a1" * 18, key="token", stated=Stated(sensitivity="personal"))
    assert [(await writes.held(key)).sensitivity for key in ("stated", "found", "token")] == ["secret"] * 3


async def test_labels_become_tags_and_a_classifier_that_fails_changes_nothing(writes: Writes) -> None:
    writes.allow(WritePolicy(), classifier_endpoint="topics")
    writes.classifier.by_text["the invoice is due"] = ("finance", "urgent")
    await writes.set("the invoice is due", key="invoice", tags=("urgent",))
    memory = await writes.held("invoice")
    assert (memory.content.tags, memory.labels) == (("urgent", "finance"), ("finance",))
    writes.classifier.failure = ProviderFailed("down")
    again = await writes.set("the invoice is due", key="invoice", tags=("urgent",))
    assert (again.stored, again.reason) == (False, UNCHANGED)


async def test_the_same_body_written_40_times_is_one_memory(writes: Writes) -> None:
    """Complaint: no write-path deduplication; retries make copies."""
    outcomes = [await writes.set("Ana works at Initech as a designer.") for _ in range(20)]
    outcomes += stored(await writes.set_many([writes.draft("Ana works at Initech as a designer.")] * 20))
    assert [outcome.stored for outcome in outcomes].count(True) == 1
    assert len({outcome.identity for outcome in outcomes}) == 1


async def test_a_repetition_in_other_letters_reinforces_and_is_not_added(writes: Writes) -> None:
    first = await writes.set("The deploy window is Tuesday at 14:00.", key="deploy-window")
    again = await writes.set("the deploy window is TUESDAY at 14:00", key="release-window")
    assert (again.stored, again.reason, again.duplicate_of) == (False, DUPLICATE, first.identity)
    assert again.message
    assert await writes.get("release-window") is None
    assert await repeated(writes, "deploy-window") == 1


async def test_a_repetition_inside_one_call_is_found_too(writes: Writes) -> None:
    outcomes = stored(
        await writes.set_many(
            [writes.draft("Miso is a grey cat."), writes.draft("miso is a grey cat"), writes.draft("Other")]
        )
    )
    assert [outcome.reason for outcome in outcomes] == ["", DUPLICATE, ""]
    assert outcomes[1].duplicate_of == outcomes[0].identity
    assert await repeated(writes, outcomes[0].identity.key) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The fee of plan A is 5 euros", "The fee of plan B is 7 euros"),
        ("Ana manages Ben", "Ben manages Ana"),
        ("Ticket 4411 is assigned to Ben", "Ticket 4412 is assigned to Ben"),
    ],
)
async def test_two_facts_of_one_template_are_two_memories_and_no_conflict(writes: Writes, one: str, other: str) -> None:
    outcomes = stored([await writes.set(one), await writes.set(other)])
    assert all(outcome.stored for outcome in outcomes)
    assert await writes.marks() == []


@pytest.mark.parametrize(
    "more",
    [
        {"user_id": "u2"},
        {"agent": "other"},
        {"kind": "chunk"},
        {"speaker": "Ana"},
        {"verbatim": True, "key": "another-key"},
        {"key": "turn-00017"},
        {"tags": ("new",)},
        {"event_time": NEW},
    ],
    ids=str,
)
async def test_what_is_not_the_same_memory_is_stored_though_it_reads_the_same(
    writes: Writes, more: dict[str, object]
) -> None:
    await writes.set("The team standup is at 9:15.", key="standup")
    assert (await writes.set("the team standup is at 9:15", **more)).stored  # type: ignore[arg-type]  # fields


async def test_a_value_that_its_key_explains_is_another_fact_under_another_key(writes: Writes) -> None:
    for key in ("home-address", "work-address"):
        assert (await writes.set("12 Elm Street", key=key)).stored


async def test_gates_that_are_off_store_everything(writes: Writes) -> None:
    writes.allow(WritePolicy(duplicates=False, conflicts=False))
    await writes.set("Ben lives in Utrecht.")
    assert (await writes.set("ben lives in utrecht")).stored
    assert (await writes.set("Ben lives in Antwerp.")).supersedes == ()
    assert await writes.marks() == []


async def test_turns_of_a_conversation_are_all_kept(writes: Writes) -> None:
    """An import of a chat holds the same words again and again: yes, ok, thank you."""
    turns = [
        writes.draft("Thank you so much!", f"turn-{place:05d}", session_id="s", speaker="Ana", kind="chunk")
        for place in range(5)
    ] + [writes.draft("Sounds good to me.", f"D1:{place}", session_id="s") for place in range(5)]
    assert all(outcome.stored for outcome in stored(await writes.set_many(turns)))


async def test_a_changed_fact_ends_the_older_one_and_keeps_it(writes: Writes) -> None:
    """Complaint: an old employer ranks first; adding alone surfaces stale facts."""
    old = await writes.set("Ana works at Initech.", event_time=OLD)
    new = await writes.set("Ana works at Globex.", event_time=NEW)
    assert new.supersedes == (old.identity,)
    older, newer = await writes.held(old.identity.key), await writes.held(new.identity.key)
    assert (older.content.value, older.invalid_at, newer.invalid_at) == ("Ana works at Initech.", NEW, None)
    history = await writes.base.reader.history(writes.scope, old.identity, page_size=10, page_token="")
    assert [(version.revision, version.invalid_at) for version in history.memories] == [(2, NEW), (1, None)]
    assert history.superseded_at[1] == history.memories[0].updated_at


async def test_what_is_told_late_of_an_earlier_time_does_not_end_what_holds_now(writes: Writes) -> None:
    new = await writes.set("Ana works at Globex.", event_time=NEW)
    old = await writes.set("Ana works at Initech.", event_time=OLD)
    assert (old.superseded_by, old.supersedes) == (new.identity, ())
    assert (await writes.held(old.identity.key)).invalid_at == NEW
    assert (await writes.held(new.identity.key)).invalid_at is None


async def test_a_contradiction_keeps_both_and_the_second_holds(writes: Writes) -> None:
    """Complaint: of "love X" and then "hate X" the first was removed and the second never added."""
    first = await writes.set("I love pineapple pizza")
    second = await writes.set("I hate pineapple pizza")
    assert second.stored
    listed = await writes.base.reader.list(writes.scope, Filter(), page_size=10, page_token="")
    assert {memory.content.value for memory in listed.memories} == {"I love pineapple pizza", "I hate pineapple pizza"}
    assert (await writes.held(first.identity.key)).invalid_at is not None
    assert (await writes.held(second.identity.key)).invalid_at is None


async def test_contradictions_inside_one_call_end_each_other_by_time(writes: Writes) -> None:
    outcomes = stored(
        await writes.set_many(
            [
                writes.draft("Ben lives in Antwerp.", event_time=NEW),
                writes.draft("Ben lives in Utrecht.", event_time=OLD),
                writes.draft("Ben lives in Ghent.", event_time=NEW + timedelta(days=400)),
            ]
        )
    )
    windows = {}
    for outcome in outcomes:
        memory = await writes.held(outcome.identity.key)
        windows[memory.content.value] = (memory.content.event_time, memory.invalid_at)
    assert windows == {
        "Ben lives in Utrecht.": (OLD, NEW),
        "Ben lives in Antwerp.": (NEW, NEW + timedelta(days=400)),
        "Ben lives in Ghent.": (NEW + timedelta(days=400), None),
    }
    assert {mark.state for mark in await writes.marks()} == {State.OPEN}


async def test_an_explicit_key_written_again_is_a_version_whatever_the_words(writes: Writes) -> None:
    """Complaint: a put overwrites blindly; the value and time before are lost."""
    await writes.set("Ben lives in Utrecht.", key="home-town")
    written = await writes.set("Ben lives in Antwerp.", key="home-town")
    assert (written.revision, written.supersedes) == (2, ())
    history = await writes.base.reader.history(writes.scope, Identity("home-town"), page_size=10, page_token="")
    assert [version.content.value for version in history.memories] == ["Ben lives in Antwerp.", "Ben lives in Utrecht."]
    assert await writes.marks() == []


async def test_the_same_words_hold_again_when_they_are_told_again(writes: Writes) -> None:
    first = await writes.set("Ben lives in Utrecht.")
    await writes.set("Ben lives in Antwerp.")
    again = await writes.set("Ben lives in Utrecht.")
    assert (again.stored, again.identity, again.revision) == (True, first.identity, 3)
    assert (await writes.held(first.identity.key)).invalid_at is None
    assert (await writes.marks())[0].older != first.identity


async def test_an_event_told_again_is_no_news_although_it_is_over(writes: Writes) -> None:
    """Complaint: an import that is run again doubles the data."""
    facts = [("Ana works at Initech.", OLD), ("Ana works at Globex.", NEW)]
    for _ in range(3):
        for value, at in facts:
            await writes.set(value, event_time=at)
    listed = await writes.base.reader.list(writes.scope, Filter(), page_size=10, page_token="")
    assert len(listed.memories) == 2
    assert len(await writes.marks()) == 1


async def test_a_superseded_memory_is_found_by_its_vector_as_before(writes: Writes) -> None:
    old = await writes.set("Ben lives in Utrecht.")
    await writes.set("Ben lives in Antwerp.")
    memory = await writes.held(old.identity.key)
    vectors = await VersionVectors(writes.ch).by_model(writes.scope, old.identity, memory.version)
    assert [(found.chunks, found.dim) for found in vectors] == [(1, 256)]


async def test_a_refused_item_does_not_lose_the_others(writes: Writes) -> None:
    """Complaint: five plain sentences, three of them stored, and a success answered."""
    writes.allow(WritePolicy(blocked_words=("forbidden",)))
    outcomes = await writes.set_many(
        [
            writes.draft("How do I cook rice?"),
            writes.draft("forbidden"),
            writes.draft("   "),
            writes.draft("Rice needs water."),
            writes.draft("x", "k", expected=3),
        ]
    )
    kinds = [type(each).__name__ if not hasattr(each, "stored") else (each.stored, each.reason) for each in outcomes]
    assert kinds == [(True, ""), (False, BLACKLISTED), "InvalidArgument", (True, ""), "Conflict"]
    assert isinstance(outcomes[2], InvalidArgument)
    assert isinstance(outcomes[4], Conflict)


async def test_an_end_before_its_beginning_is_refused(writes: Writes) -> None:
    with pytest.raises(InvalidArgument):
        await writes.set("x", stated=Stated(valid_at=NEW, invalid_at=OLD))


async def test_stated_times_are_kept(writes: Writes) -> None:
    stated = Stated(OLD, NEW, "observed", "personal", ("a", "b"))
    await writes.set("Ana was the CTO.", key="cto", stated=stated)
    assert (await writes.held("cto")).stated == stated
    assert (await writes.set("Ana was the CTO.", key="cto", stated=stated)).reason == UNCHANGED
    assert (await writes.set("Ana was the CTO.", key="cto")).revision == 2


async def test_exactly_one_of_75_near_copies_is_deleted(writes: Writes) -> None:
    """Complaint: no deletion of a single memory among many that read alike."""
    copies = [writes.draft(f"Shopping list {number}: buy milk and bread", f"copy-{number}") for number in range(75)]
    assert all(outcome.stored for outcome in stored(await writes.set_many(copies)))
    assert await writes.delete("copy-40")
    listed = await writes.base.reader.list(writes.scope, Filter(), page_size=100, page_token="")
    assert {memory.identity.key for memory in listed.memories} == {f"copy-{n}" for n in range(75)} - {"copy-40"}


async def test_a_fact_out_of_a_conversation_ends_what_the_same_speaker_said_before(writes: Writes) -> None:
    said = [
        ("Ana works at Initech.", "Ana", OLD),
        ("Ana works at Globex.", "Ben", NEW),
        ("Ana works at Globex.", "Ana", NEW),
    ]
    outcomes = [await writes.set(value, kind="fact", speaker=who, event_time=at) for value, who, at in said]
    assert [[name.key for name in outcome.supersedes] for outcome in outcomes] == [[], [], [outcomes[0].identity.key]]
