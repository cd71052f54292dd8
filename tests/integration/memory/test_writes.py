import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from support.memory import MemoryHarness, memory_over

from loom_common.clickhouse import ClickHouse
from loom_common.clock import FakeClock
from loom_common.errors import BackendUnavailable, Conflict, InvalidArgument, LoomError, PayloadTooLarge
from loom_memory.app.drafts import MAX_CALL_BYTES, Written
from loom_memory.app.embedding import EmbeddedText
from loom_memory.app.embedding_fake import FakeEmbedding
from loom_memory.domain.memory import Content, Filter
from loom_memory.store.versions import VersionRepository


async def test_a_memory_is_read_back_as_it_was_written(any_memory: MemoryHarness) -> None:
    event_time = datetime(2026, 3, 1, 2, 0, tzinfo=UTC)
    written = await any_memory.set(
        "k", "value 'quoted' \\ \n 咖啡", kind="fact", tags=("b", "a"), importance=0.1, agent="x", speaker="Ann",
        source="s", event_time=event_time, pinned=True, user_id="u", session_id="s1",
    )  # fmt: skip
    assert (written.revision, written.stored) == (1, True)
    memory = await any_memory.get("k", "u", "s1")
    assert memory is not None
    assert memory.content.value == "value 'quoted' \\ \n 咖啡"
    assert memory.content.tags == ("b", "a")
    assert memory.content.importance == 0.1
    assert memory.content.event_time == event_time
    assert memory.content.pinned is True
    assert memory.updated_at == written.updated_at == memory.created_at
    assert await any_memory.get("k") is None
    assert await any_memory.get("k", "u") is None


async def test_the_same_content_forty_times_is_one_version(any_memory: MemoryHarness) -> None:
    outcomes = await asyncio.gather(*(any_memory.set("k", "same body") for _ in range(40)))
    assert {outcome.revision for outcome in outcomes} == {1}
    assert sum(outcome.stored for outcome in outcomes) == 1
    assert {outcome.reason for outcome in outcomes if not outcome.stored} == {"unchanged"}
    assert len((await any_memory.history("k")).memories) == 1
    assert len(await any_memory.list_all()) == 1


async def test_a_changed_value_is_a_new_version_and_history_shows_both(any_memory: MemoryHarness) -> None:
    first = await any_memory.set("employer", "works at A")
    second = await any_memory.set("employer", "works at B")
    assert (first.revision, second.revision) == (1, 2)
    versions = (await any_memory.history("employer")).memories
    assert [(version.revision, version.content.value) for version in versions] == [(2, "works at B"), (1, "works at A")]
    memory = await any_memory.get("employer")
    assert memory is not None
    assert memory.created_at == versions[1].created_at


async def test_a_change_of_tags_alone_is_a_new_version(memory: MemoryHarness) -> None:
    await memory.set("k", "v")
    assert (await memory.set("k", "v", tags=("t",))).revision == 2


@pytest.mark.parametrize(("held", "expected"), [(0, 1), (1, 0), (1, 2), (2, 1)])
async def test_another_expected_version_is_a_conflict_and_stores_nothing(
    any_memory: MemoryHarness, held: int, expected: int
) -> None:
    for number in range(held):
        await any_memory.set("k", f"v{number}")
    with pytest.raises(Conflict):
        await any_memory.set("k", "new", expected=expected)
    assert len((await any_memory.history("k")).memories) == held


async def test_the_expected_version_is_stored(any_memory: MemoryHarness) -> None:
    assert (await any_memory.set("k", "v1", expected=0)).revision == 1
    assert (await any_memory.set("k", "v2", expected=1)).revision == 2


async def test_of_many_writers_that_expect_one_version_one_wins(any_memory: MemoryHarness) -> None:
    await any_memory.set("k", "v")
    outcomes = await asyncio.gather(
        *(any_memory.set("k", f"v{number}", expected=1) for number in range(5)), return_exceptions=True
    )
    assert sum(isinstance(outcome, Written) for outcome in outcomes) == 1
    assert all(isinstance(outcome, Written | Conflict) for outcome in outcomes)
    assert [version.revision for version in (await any_memory.history("k")).memories] == [2, 1]


async def test_two_processes_on_one_key_lose_no_acknowledged_write(http_clickhouse: ClickHouse) -> None:
    one, other = await memory_over(http_clickhouse), await memory_over(http_clickhouse)

    async def write(memory: MemoryHarness, name: str) -> list[Written]:
        return [await memory.set("k", f"{name} {number}") for number in range(20)]

    written = [outcome for each in await asyncio.gather(write(one, "a"), write(other, "b")) for outcome in each]
    versions: list[str] = [version.content.value for version in (await one.history("k")).memories]
    assert sorted(versions) == sorted([f"a {n}" for n in range(20)] + [f"b {n}" for n in range(20)])
    assert len({outcome.revision for outcome in written}) == 40
    current = await other.get("k")
    assert current is not None
    assert current.content.value in ("a 19", "b 19")


async def test_of_two_processes_that_expect_one_version_one_wins(http_clickhouse: ClickHouse) -> None:
    one, other = await memory_over(http_clickhouse), await memory_over(http_clickhouse)
    for turn in range(5):
        outcomes = await asyncio.gather(
            one.set("k", f"a {turn}", expected=turn),
            other.set("k", f"b {turn}", expected=turn),
            return_exceptions=True,
        )
        assert sum(isinstance(outcome, Written) for outcome in outcomes) == 1
        assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 1
    assert [version.revision for version in (await one.history("k")).memories] == [5, 4, 3, 2, 1]


async def test_a_deletion_that_expects_a_version_never_buries_a_newer_one_of_another_process(
    http_clickhouse: ClickHouse,
) -> None:
    one, other = await memory_over(http_clickhouse), await memory_over(http_clickhouse)
    for turn in range(12):
        key = f"k{turn}"
        await one.set(key, "first")
        outcomes = await asyncio.gather(one.set(key, "second"), other.delete(key, expected=1), return_exceptions=True)
        assert isinstance(outcomes[0], Written)
        assert outcomes[1] is True or isinstance(outcomes[1], Conflict)
        # Whichever came first: the write was acknowledged, and a deletion of version 1 is not one of it.
        current = await one.get(key)
        assert current is not None
        assert current.content.value == "second"
        assert (await other.history(key)).memories[0].content.value == "second"
    await other.parts.deletions.close()


async def test_a_revision_that_a_deletion_claimed_is_free_again(http_clickhouse: ClickHouse) -> None:
    one, other = await memory_over(http_clickhouse), await memory_over(http_clickhouse)
    await one.set("k", "first")
    assert await other.delete("k", expected=1)
    assert (await one.set("k", "second")).revision == 2
    assert [each.content.value for each in (await one.history("k")).memories] == ["second"]
    await other.parts.deletions.close()


async def test_set_many_answers_each_item_and_keeps_the_order_of_one_key(any_memory: MemoryHarness) -> None:
    await any_memory.set("old", "as it is")
    outcomes = await any_memory.set_many(
        [
            any_memory.draft("a", "one"),
            any_memory.draft("old", "as it is"),
            any_memory.draft("a", "two"),
            any_memory.draft("old", "refused", expected=7),
            any_memory.draft("a", "two"),
        ]
    )
    assert isinstance(outcomes[3], Conflict)
    kept = [outcome for outcome in outcomes if isinstance(outcome, Written)]
    assert [(item.identity.key, item.revision, item.stored) for item in kept] == [
        ("a", 1, True),
        ("old", 1, False),
        ("a", 2, True),
        ("a", 2, False),
    ]


async def test_set_many_stores_five_hundred(any_memory: MemoryHarness) -> None:
    await any_memory.fill({f"k{number}": f"note number {number}" for number in range(500)})
    assert len(await any_memory.list_all(page_size=500)) == 500


async def test_more_text_than_one_call_takes_is_refused_at_once_and_says_how_to_split(memory: MemoryHarness) -> None:
    value = "x" * 65_536
    with pytest.raises(InvalidArgument, match="3 calls") as caught:
        await memory.set_many([memory.draft(f"k{number}", value) for number in range(17)])
    assert [violation.field for violation in caught.value.fields] == ["items"]
    assert caught.value.detail["max_bytes"] == MAX_CALL_BYTES
    assert memory.embedding.texts == 0
    memory.embedding.refusal = PayloadTooLarge("too many", detail={"tokens": 250_000, "max_tokens": 100_000})
    with pytest.raises(InvalidArgument, match="3 calls") as caught:
        await memory.set_many([memory.draft("k1", value), memory.draft("k2", "another")])
    assert caught.value.detail == {"field": "items", "max_tokens": 100_000}
    memory.embedding.refusal = None
    assert await memory.get("k1") is None
    await memory.fill({f"k{number}": value for number in range(8)})


async def test_too_much_text_of_a_key_that_comes_again_is_the_answer_of_that_item_alone(clickhouse: ClickHouse) -> None:
    class Bounded(FakeEmbedding):
        async def embed_many(self, texts: Sequence[str]) -> list[EmbeddedText]:
            if "again" in texts:
                raise PayloadTooLarge("too many", detail={"tokens": 250_000, "max_tokens": 100_000})
            return await super().embed_many(texts)

    memory = await memory_over(clickhouse, Bounded())
    first, again = await memory.set_many([memory.draft("k", "first"), memory.draft("k", "again")])
    assert isinstance(first, Written)
    assert isinstance(again, InvalidArgument)
    stored = await memory.get("k")
    assert stored is not None
    assert stored.content.value == "first"


async def test_a_write_that_cannot_be_embedded_stores_nothing(memory: MemoryHarness) -> None:
    memory.embedding.failure = BackendUnavailable("away")
    with pytest.raises(BackendUnavailable):
        await memory.set("k", "v")
    memory.embedding.failure = None
    assert await memory.get("k") is None
    assert (await memory.set("k", "v")).revision == 1


async def test_a_time_of_expiry_in_the_past_is_refused(memory: MemoryHarness) -> None:
    with pytest.raises(InvalidArgument):
        await memory.set("k", "v", expires_at=datetime.now(UTC) - timedelta(seconds=1))


async def test_deleting_one_of_seventy_five_near_copies_deletes_that_one(any_memory: MemoryHarness) -> None:
    await any_memory.fill({f"copy-{number}": "The office coffee machine is broken again" for number in range(75)})
    assert await any_memory.delete("copy-40")
    keys = [memory.identity.key for memory in await any_memory.list_all()]
    assert sorted(keys) == sorted(f"copy-{number}" for number in range(75) if number != 40)
    hits = (await any_memory.search("coffee machine broken", top_k=100)).hits
    assert len({hit.memory.identity for hit in hits}) == len(hits) == 74


async def test_a_deleted_memory_has_no_history_and_its_revisions_go_on(any_memory: MemoryHarness) -> None:
    await any_memory.set("k", "v1")
    await any_memory.set("k", "v2")
    assert await any_memory.delete("k")
    assert await any_memory.get("k") is None
    assert (await any_memory.history("k")).memories == []
    assert not await any_memory.delete("k")
    assert (await any_memory.set("k", "v2")).revision == 3
    assert [version.content.value for version in (await any_memory.history("k")).memories] == ["v2"]
    await any_memory.parts.deletions.flush()
    assert [version.content.value for version in (await any_memory.history("k")).memories] == ["v2"]


async def test_a_key_that_is_set_after_its_memory_expired_begins_a_new_history(any_clickhouse: ClickHouse) -> None:
    clock = FakeClock()
    memory = await memory_over(any_clickhouse, clock=clock)
    await memory.set("k", "lasting")
    await memory.set("k", "secret", expires_at=clock.now() + timedelta(seconds=1))
    assert [version.revision for version in (await memory.history("k")).memories] == [2, 1]
    clock.advance(1)
    assert (await memory.history("k")).memories == []
    assert (await memory.set("k", "new")).revision == 3
    clock.advance(1)
    assert (await memory.set("k", "newer")).revision == 4
    first = await memory.history("k", page_size=1)
    rest = await memory.history("k", page_size=1, page_token=first.next_page_token)
    assert [version.content.value for version in first.memories + rest.memories] == ["newer", "new"]
    assert rest.next_page_token == ""
    current = await memory.get("k")
    assert current is not None
    assert current.created_at == rest.memories[0].updated_at
    await memory.parts.deletions.close()


async def test_history_goes_on_over_a_version_that_was_replaced_before_it_expired(any_clickhouse: ClickHouse) -> None:
    clock = FakeClock()
    memory = await memory_over(any_clickhouse, clock=clock)
    await memory.set("k", "short", expires_at=clock.now() + timedelta(seconds=2))
    clock.advance(1)
    await memory.set("k", "long")
    clock.advance(5)
    await memory.set("k", "longer")
    versions = (await memory.history("k")).memories
    assert [version.content.value for version in versions] == ["longer", "long", "short"]
    assert {version.created_at for version in versions} == {versions[2].updated_at}
    await memory.parts.deletions.close()


async def test_an_interrupted_write_with_an_expiry_does_not_cut_the_history(any_clickhouse: ClickHouse) -> None:
    clock = FakeClock()
    memory = await memory_over(any_clickhouse, clock=clock)
    await memory.set("k", "first")
    row = await memory.get("k")
    assert row is not None
    content = Content("half", expires_at=clock.now() + timedelta(seconds=1))
    half = replace(row, content=content, revision=2, version=row.version + 1)
    await VersionRepository(memory.ch).insert([half])
    # Later than others wait for an unfinished write, so that its revision is taken again.
    clock.advance(120)
    assert (await memory.set("k", "second")).revision == 2
    assert [version.content.value for version in (await memory.history("k")).memories] == ["second", "first"]
    await memory.parts.deletions.close()


async def test_deleting_another_version_than_expected_is_a_conflict(any_memory: MemoryHarness) -> None:
    await any_memory.set("k", "v1")
    with pytest.raises(Conflict):
        await any_memory.delete("k", expected=2)
    assert await any_memory.delete("k", expected=1)


async def test_deleting_one_users_memory_leaves_the_others(memory: MemoryHarness) -> None:
    await memory.set("k", "of a", user_id="a")
    await memory.set("k", "of b", user_id="b")
    assert await memory.delete("k", "a")
    assert await memory.get("k", "b") is not None
    assert [each.identity.user_id for each in await memory.list_all()] == ["b"]
    assert [each.identity.user_id for each in await memory.list_all(wanted=Filter(user_id="b"))] == ["b"]


async def test_history_is_paged_without_gap_or_repeat(memory: MemoryHarness) -> None:
    for number in range(7):
        await memory.set("k", f"v{number}")
    revisions: list[int] = []
    token = ""
    while True:
        page = await memory.history("k", page_size=3, page_token=token)
        revisions += [version.revision for version in page.memories]
        token = page.next_page_token
        if not token:
            break
        if revisions[-1] == 5:
            await memory.set("k", "written meanwhile")
    assert revisions == [7, 6, 5, 4, 3, 2, 1]


async def test_an_error_of_one_item_is_a_loom_error(memory: MemoryHarness) -> None:
    outcomes = await memory.set_many([memory.draft("k", "v", expected=3)])
    assert isinstance(outcomes[0], LoomError)


async def test_a_blank_value_is_refused(memory: MemoryHarness) -> None:
    with pytest.raises(InvalidArgument):
        await memory.set("k", " \n\t")
