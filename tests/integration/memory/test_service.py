"""The service over gRPC: the way of a call from its token to the store and back."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
import pytest
from support.grpc import Deployment, bearer, reason_of
from support.memory import MemoryHarness, memory_over

from loom.memory.v1 import conflicts_pb2, conflicts_pb2_grpc, memory_pb2_grpc, search_pb2, search_pb2_grpc
from loom.memory.v1 import memory_pb2 as pb
from loom_common.auth.claims import ReadScope
from loom_common.clickhouse import ClickHouse
from loom_common.errors import EmbedTimeout


@dataclass
class Served:
    deployment: Deployment
    harness: MemoryHarness
    memories: "memory_pb2_grpc.MemoryServiceAsyncStub"
    search: "search_pb2_grpc.SearchServiceAsyncStub"
    channel: grpc.aio.Channel

    def as_user(self, user_id: str) -> tuple[tuple[str, str | bytes], ...]:
        return bearer(self.deployment.token("team:writer", read_scope=ReadScope.OWN_USER, user_id=user_id))

    @property
    def writer(self) -> tuple[tuple[str, str | bytes], ...]:
        return bearer(self.deployment.token("team:writer", "default:writer"))


@pytest.fixture
async def served(clickhouse: ClickHouse, service_keys: Path) -> AsyncIterator[Served]:
    deployment = Deployment(service_keys)
    harness = await memory_over(clickhouse, directory=deployment.directory)
    async with (
        deployment.serving(*harness.parts.services()) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        yield Served(
            deployment,
            harness,
            memory_pb2_grpc.MemoryServiceStub(channel),
            search_pb2_grpc.SearchServiceStub(channel),
            channel,
        )
    await harness.parts.deletions.close()


async def test_a_memory_goes_round(served: Served) -> None:
    metadata = served.writer
    written = await served.memories.SetMemory(
        pb.SetMemoryRequest(key="k", value="plays violin", kind="fact", tags=["t"], event_time="2026-03-01"),
        metadata=metadata,
    )
    assert (written.key, written.version, written.stored, written.namespace) == ("k", 1, True, "team")
    got = await served.memories.GetMemory(pb.GetMemoryRequest(key="k"), metadata=metadata)
    assert got.found
    assert (got.memory.value, got.memory.version, got.memory.actor) == ("plays violin", 1, "process:sa:bot")
    assert got.memory.event_time == "2026-03-01T00:00:00.000Z"
    hits = (await served.memories.SearchMemories(pb.SearchMemoriesRequest(query="violin"), metadata=metadata)).hits
    assert hits[0].memory.key == "k"
    assert hits[0].HasField("similarity")
    assert (await served.memories.DeleteMemory(pb.DeleteMemoryRequest(key="k"), metadata=metadata)).deleted
    assert not (await served.memories.GetMemory(pb.GetMemoryRequest(key="k"), metadata=metadata)).found
    versions = await served.memories.ListMemoryVersions(pb.ListMemoryVersionsRequest(key="k"), metadata=metadata)
    assert not versions.versions


async def test_what_contradicts_is_listed_settled_inspected_and_restored(served: Served) -> None:
    metadata, memories = served.writer, served.memories
    old = pb.MemoryInput(key="home-before", value="Ben lives in Utrecht.", valid_at="2020-01-01", attestation="stated")
    new = pb.MemoryInput(key="home-now", value="Ben lives in Antwerp.", event_time="2024-01-01T02:00:00+02:00")
    again = pb.MemoryInput(key="his-home", value="ben lives in antwerp", sensitivity="personal", source="s")
    answer = await memories.SetManyMemories(pb.SetManyMemoriesRequest(items=[old, new, again]), metadata=metadata)
    assert [list(result.supersedes) for result in answer.results] == [[], ["home-before"], []]
    same = pb.SetMemoryRequest(key="his-flat", value="ben lives in antwerp!")
    told = await memories.SetMemory(same, metadata=metadata)
    assert (told.stored, told.reason, bool(told.message), told.key) == (False, "duplicate", True, told.duplicate_of)
    ended = (await memories.GetMemory(pb.GetMemoryRequest(key="home-before"), metadata=metadata)).memory
    assert (ended.valid_at, ended.invalid_at) == ("2020-01-01T00:00:00.000Z", "2024-01-01T00:00:00.000Z")
    assert ended.attestation == "stated"

    conflicts = conflicts_pb2_grpc.ConflictServiceStub(served.channel)
    (mark,) = (
        await conflicts.ListConflicts(conflicts_pb2.ListConflictsRequest(key="home-before"), metadata=metadata)
    ).conflicts
    assert (mark.newer.key, mark.older.key, mark.state) == ("home-now", "home-before", "open")
    resolve = conflicts_pb2.ResolveConflictRequest(conflict_id=mark.conflict_id, resolution="keep_both")
    settled = await conflicts.ResolveConflict(resolve, metadata=metadata)
    assert (settled.conflict.state, settled.older_version) == ("resolved", 2)
    history = pb.ListMemoryVersionsRequest(key="home-before", page_size=1)
    first = await memories.ListMemoryVersions(history, metadata=metadata)
    history.page_token = first.next_page_token
    second = await memories.ListMemoryVersions(history, metadata=metadata)
    versions = [*first.versions, *second.versions]
    assert [version.version for version in versions] == [2, 1]
    assert [version.superseded_at for version in versions] == ["", versions[0].updated_at]

    feedback = pb.GiveMemoryFeedbackRequest(key="home-now", verdict="useful")
    assert (await memories.GiveMemoryFeedback(feedback, metadata=metadata)).signals.useful_count == 1
    seen = await memories.InspectMemory(pb.InspectMemoryRequest(key="home-now"), metadata=metadata)
    assert (seen.found, seen.versions_count, seen.conflicts[0].conflict_id) == (True, 1, mark.conflict_id)
    assert seen.recogniser.startswith("loom-")
    whence = await memories.GetMemoryProvenance(pb.GetMemoryProvenanceRequest(key="home-now"), metadata=metadata)
    assert (whence.found, whence.actor, bool(whence.request_id)) == (True, "process:sa:bot", True)

    await memories.DeleteMemory(pb.DeleteMemoryRequest(key="home-now"), metadata=metadata)
    back = await memories.RestoreMemory(pb.RestoreMemoryRequest(key="home-now"), metadata=metadata)
    assert (back.stored, back.version, back.restored_version) == (True, 2, 1)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await memories.RestoreMemory(pb.RestoreMemoryRequest(key="never"), metadata=metadata)
    assert reason_of(caught.value) == "NOT_FOUND"
    assert not (await memories.InspectMemory(pb.InspectMemoryRequest(key="never"), metadata=metadata)).found


async def test_both_searches_give_the_same_ids_in_the_same_order(served: Served) -> None:
    metadata = served.writer
    items = [
        pb.MemoryInput(key=f"k{number}", value=f"espresso note {number} about {'violin ' * (number % 3)}lessons")
        for number in range(30)
    ]
    answer = await served.memories.SetManyMemories(pb.SetManyMemoriesRequest(items=items), metadata=metadata)
    assert (answer.ok_count, answer.error_count) == (30, 0)
    one = await served.memories.SearchMemories(
        pb.SearchMemoriesRequest(query="violin espresso", top_k=20), metadata=metadata
    )
    other = await served.search.Search(
        search_pb2.SearchRequest(query="violin espresso", top_k=20, namespace_scope="this"), metadata=metadata
    )
    assert [hit.memory.key for hit in one.hits] == [hit.memory.key for hit in other.memory.hits]
    assert [hit.score for hit in one.hits] == [hit.score for hit in other.memory.hits]
    # The search of everything leaves the weaker matches out, and says how many.
    assert one.candidates_total == other.memory.candidates_total + other.memory.withheld_count


async def test_a_search_of_all_namespaces_shows_where_a_hit_is_from_and_cuts_long_texts(served: Served) -> None:
    metadata = served.writer
    for namespace in ("team", "default"):
        await served.memories.SetMemory(
            pb.SetMemoryRequest(namespace=namespace, key="k", value="espresso machine " + "details " * 60),
            metadata=metadata,
        )
    answer = await served.search.Search(search_pb2.SearchRequest(query="espresso machine"), metadata=metadata)
    assert [hit.memory.namespace for hit in answer.memory.hits] == ["team", "default"]
    assert all(hit.memory.value_truncated and len(hit.memory.value) == 200 for hit in answer.memory.hits)
    full = await served.search.Search(
        search_pb2.SearchRequest(query="espresso machine", namespace_scope="this", bodies="full"), metadata=metadata
    )
    assert [len(hit.memory.value) for hit in full.memory.hits] == [17 + 8 * 60]


async def test_a_token_of_one_user_sees_and_writes_only_that_users_rows(served: Served) -> None:
    for user in ("ann", "bob"):
        await served.memories.SetMemory(
            pb.SetMemoryRequest(key="home", value=f"lives in a house, says {user}", user_id=user),
            metadata=served.writer,
        )
    ann = served.as_user("ann")
    hits = (await served.memories.SearchMemories(pb.SearchMemoriesRequest(query="house"), metadata=ann)).hits
    assert [hit.memory.user_id for hit in hits] == ["ann"]
    found = await served.search.Search(search_pb2.SearchRequest(query="house"), metadata=ann)
    assert [hit.memory.user_id for hit in found.memory.hits] == ["ann"]
    listed = (await served.memories.ListMemories(pb.ListMemoriesRequest(), metadata=ann)).memories
    assert [memory.user_id for memory in listed] == ["ann"]
    assert (await served.memories.GetMemory(pb.GetMemoryRequest(key="home"), metadata=ann)).memory.user_id == "ann"
    written = await served.memories.SetMemory(pb.SetMemoryRequest(key="home", value="moved"), metadata=ann)
    assert written.version == 2
    for call in (
        served.memories.GetMemory(pb.GetMemoryRequest(key="home", user_id="bob"), metadata=ann),
        served.memories.SetMemory(pb.SetMemoryRequest(key="home", value="x", user_id="bob"), metadata=ann),
        served.memories.DeleteMemory(pb.DeleteMemoryRequest(key="home", user_id="bob"), metadata=ann),
        served.memories.ListMemories(pb.ListMemoriesRequest(user_id="bob"), metadata=ann),
        served.memories.SearchMemories(pb.SearchMemoriesRequest(query="x", user_id="bob"), metadata=ann),
        served.memories.ListMemoryVersions(pb.ListMemoryVersionsRequest(key="home", user_id="bob"), metadata=ann),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert reason_of(caught.value) == "AUTH_INSUFFICIENT"


async def test_a_token_of_one_session_without_a_user_sees_no_users_rows(served: Served) -> None:
    for user in ("", "ann"):
        await served.memories.SetMemory(
            pb.SetMemoryRequest(key="home", value="lives in a house", user_id=user, session_id="s1"),
            metadata=served.writer,
        )
    own = bearer(served.deployment.token("team:writer", read_scope=ReadScope.OWN_SESSION, session_id="s1"))
    listed = (await served.memories.ListMemories(pb.ListMemoriesRequest(), metadata=own)).memories
    assert [memory.user_id for memory in listed] == [""]
    for mode in ("hybrid", "vector", "lexical"):
        request = pb.SearchMemoriesRequest(query="house", search_mode=mode)
        hits = (await served.memories.SearchMemories(request, metadata=own)).hits
        assert [hit.memory.user_id for hit in hits] == [""]
    found = await served.search.Search(search_pb2.SearchRequest(query="house"), metadata=own)
    assert [hit.memory.user_id for hit in found.memory.hits] == [""]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await served.memories.SetMemory(pb.SetMemoryRequest(key="home", value="x", user_id="ann"), metadata=own)
    assert reason_of(caught.value) == "AUTH_INSUFFICIENT"


async def test_a_bad_item_does_not_lose_the_others(served: Served) -> None:
    answer = await served.memories.SetManyMemories(
        pb.SetManyMemoriesRequest(
            items=[
                pb.MemoryInput(key="a", value="good"),
                pb.MemoryInput(key="b", value="x" * 70_000),
                pb.MemoryInput(key="c", value="good", expires_at="not a time"),
                pb.MemoryInput(key="d", value="good"),
            ]
        ),
        metadata=served.writer,
    )
    assert [result.reason for result in answer.results] == ["", "INVALID_ARGUMENT", "INVALID_ARGUMENT", ""]
    assert (answer.ok_count, answer.error_count) == (2, 2)
    assert [memory.identity.key for memory in await served.harness.list_all()] == ["d", "a"]


async def test_a_repeated_write_with_its_key_makes_one_memory(served: Served) -> None:
    metadata = (*served.writer, ("idempotency-key", "once"))
    request = pb.SetMemoryRequest(value="a key is made")
    answers = [await served.memories.SetMemory(request, metadata=metadata) for _ in range(3)]
    assert len({answer.key for answer in answers}) == 1
    assert len(await served.harness.list_all()) == 1
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await served.memories.SetMemory(pb.SetMemoryRequest(value="another body"), metadata=metadata)
    assert reason_of(caught.value) == "CONFLICT"


async def test_an_idempotency_key_repeats_no_answer_of_another_user(served: Served) -> None:
    one, other = ((*served.as_user(user), ("idempotency-key", "once")) for user in ("u7", "u8"))
    request = pb.SetMemoryRequest(key="home", value="lives in a house")
    many = pb.SetManyMemoriesRequest(items=[pb.MemoryInput(key="work", value="works in a mill")])
    for metadata in (one, other):
        assert (await served.memories.SetMemory(request, metadata=metadata)).stored
        assert (await served.memories.SetManyMemories(many, metadata=metadata)).results[0].stored
        listed = (await served.memories.ListMemories(pb.ListMemoriesRequest(), metadata=metadata)).memories
        assert [memory.key for memory in listed] == ["work", "home"]
    for metadata in (one, other):
        # The first answer, not `unchanged`.
        assert (await served.memories.SetMemory(request, metadata=metadata)).stored
        assert (await served.memories.DeleteMemory(pb.DeleteMemoryRequest(key="home"), metadata=metadata)).deleted
    assert [memory.identity.key for memory in await served.harness.list_all()] == ["work", "work"]


async def test_an_idempotency_key_repeats_no_answer_of_another_session(served: Served) -> None:
    request = pb.SetMemoryRequest(key="home", value="lives in a house")
    for session in ("s1", "s2"):
        token = served.deployment.token(
            "team:writer", read_scope=ReadScope.OWN_SESSION, user_id="ann", session_id=session
        )
        assert (await served.memories.SetMemory(request, metadata=(*bearer(token), ("idempotency-key", "once")))).stored
    assert {memory.identity.session_id for memory in await served.harness.list_all()} == {"s1", "s2"}


async def test_an_idempotency_key_is_another_one_in_another_namespace(served: Served) -> None:
    metadata = (*served.writer, ("idempotency-key", "once"))
    for namespace in ("team", "default"):
        request = pb.SetMemoryRequest(namespace=namespace, key="k", value="the same")
        written = await served.memories.SetMemory(request, metadata=metadata)
        assert (written.namespace, written.stored) == (namespace, True)


async def test_an_idempotency_key_outlives_the_token_of_a_caller_who_reads_the_namespace(served: Served) -> None:
    request = pb.SetMemoryRequest(key="k", value="the same")
    for session in ("s1", "s2"):
        token = served.deployment.token("team:writer", session_id=session)
        assert (await served.memories.SetMemory(request, metadata=(*bearer(token), ("idempotency-key", "once")))).stored


async def test_forty_writes_of_one_body_without_a_key_make_one_memory(served: Served) -> None:
    request = pb.SetMemoryRequest(value="the bridge is closed", tags=["roads"], session_id="s1")
    answers = [await served.memories.SetMemory(request, metadata=served.writer) for _ in range(40)]
    assert len({answer.key for answer in answers}) == 1
    assert [answer.stored for answer in answers] == [True] + [False] * 39
    listed = await served.memories.ListMemories(pb.ListMemoriesRequest(), metadata=served.writer)
    assert len(listed.memories) == 1


async def test_bodies_that_differ_in_time_or_session_alone_are_memories_of_their_own(served: Served) -> None:
    for session in ("s1", "s2"):
        for day in ("2026-03-01", "2026-03-02"):
            request = pb.SetMemoryRequest(value="Yes!", session_id=session, event_time=day)
            assert (await served.memories.SetMemory(request, metadata=served.writer)).stored
    listed = await served.memories.ListMemories(pb.ListMemoriesRequest(), metadata=served.writer)
    assert len(listed.memories) == 4


async def test_an_embedding_that_does_not_come_is_an_error_of_one_search_and_a_section_of_the_other(
    served: Served,
) -> None:
    served.harness.embedding.failure = EmbedTimeout("late")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await served.memories.SearchMemories(pb.SearchMemoriesRequest(query="x"), metadata=served.writer)
    assert reason_of(caught.value) == "EMBED_TIMEOUT"
    answer = await served.search.Search(search_pb2.SearchRequest(query="x"), metadata=served.writer)
    assert (answer.memory.error, list(answer.memory.hits)) == ("EMBED_TIMEOUT", [])
