"""The ledger's rows, and their way to insights."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import grpc
import pytest
from support.grpc import Deployment, MemoryUnderTest, Service, bearer

from loom.insights.v1 import ledger_pb2, ledger_pb2_grpc
from loom.memory.v1 import memory_pb2 as pb
from loom.memory.v1 import search_pb2
from loom_common import ledger
from loom_common.auth.directory import FakeDirectory, NamespaceInfo
from loom_common.call import Call, Scope, current
from loom_common.clock import FakeClock
from loom_common.errors import BackendUnavailable, Conflict
from loom_common.ledger import GrpcLedgerSink, LedgerEntry, ledger_entry
from loom_common.ops import all_ops
from loom_common.usage import Usage

AT = datetime(2026, 11, 30, 13, 5, tzinfo=UTC)


def entry(op: str, request: object, response: object, call: Call | None = None, **more: object) -> LedgerEntry:
    facts: dict[str, object] = {
        "recorder": "memory",
        "started_at": AT,
        "latency_ms": 1.5,
        "outcome": "ok",
        "refused": False,
    }
    given = call or Call(op=op, request_id="r", scope=Scope("acme", "default"))
    return ledger_entry(all_ops()[op], given, request, response, **{**facts, **more})  # type: ignore[arg-type]  # any


def test_texts_become_digests_and_identifiers_stay() -> None:
    request = pb.SetMemoryRequest(key="a/b", value="the text", user_id="u")
    made = entry("memory.set", request, pb.SetMemoryResponse())
    assert dict(made.row.args) == {"key": "a/b"}
    assert made.text_digests == {"value": hashlib.sha256(b"the text").hexdigest()}
    assert (made.row.user_id, made.row.occurred_at) == ("u", "2026-11-30T13:05:00.000Z")
    assert "the text" not in str(made)


def test_a_list_of_messages_has_one_digest_that_depends_on_it_alone() -> None:
    one = pb.SetManyMemoriesRequest(namespace="a")
    one.items.add(key="k", value="v")
    same = pb.SetManyMemoriesRequest(namespace="b")
    same.items.add(key="k", value="v")
    other = pb.SetManyMemoriesRequest(namespace="a")
    other.items.add(key="k", value="w")
    digests = [entry("memory.set_many", request, None).text_digests["items"] for request in (one, same, other)]
    assert digests[0] == digests[1] != digests[2]


def test_hits_are_counted_where_the_operation_has_some() -> None:
    hits = search_pb2.SearchResponse(memory=search_pb2.MemorySection(hits=[pb.MemoryHit()] * 3))
    assert entry("search.query", search_pb2.SearchRequest(query="q"), hits).row.out_hits == 3
    found = entry("memory.get", pb.GetMemoryRequest(key="k"), pb.GetMemoryResponse(found=True)).row
    assert (found.found, found.HasField("out_hits")) == (True, False)
    failed = entry("memory.get", pb.GetMemoryRequest(key="k"), None, outcome="NOT_FOUND").row
    assert (failed.HasField("found"), failed.status) == (False, "NOT_FOUND")


def test_a_call_that_names_nothing_has_a_row_under_the_sentinel() -> None:
    row = entry("memory.get", None, None, Call(op="memory.get"), outcome="UNAUTHENTICATED", refused=True).row
    assert (row.org, row.namespace, row.refused) == ("_none", "_none", True)


def test_what_was_spent_is_in_the_row() -> None:
    call = Call(op="memory.get", scope=Scope("acme", "default"), usage=Usage(embedding_tokens=3, model="m"))
    row = entry("memory.get", pb.GetMemoryRequest(key="k"), None, call).row
    assert (row.embedding_tokens, row.model) == (3, "m")


async def test_a_direct_call_is_recorded_and_a_services_is_not(memory: MemoryUnderTest) -> None:
    token = memory.deployment.token()
    request = pb.SearchMemoriesRequest(query="q")
    await memory.stub.SearchMemories(request, metadata=bearer(token))
    await memory.stub.SearchMemories(request, metadata=bearer(token, memory.deployment.credential("gateway")))
    (made,) = memory.deployment.ledger.entries
    row = made.row
    assert (row.op, row.status, row.out_hits, row.recorder) == ("memory.search", "ok", 2, "memory")
    assert (row.org, row.namespace, row.subject, row.transport) == ("acme", "default", "sa:bot", "grpc")
    assert (row.refused, row.latency_ms > 0) == (False, True)


@pytest.mark.parametrize(("ended_by", "status"), [("cancel", "CANCELLED"), ("deadline", "DEADLINE_EXCEEDED")])
async def test_what_a_services_call_spent_before_it_went_is_recorded(
    ended_by: str, status: str, memory: MemoryUnderTest
) -> None:
    begun = asyncio.Event()

    async def spend_and_wait(request: object) -> None:
        current().usage.merge(Usage(embedding_tokens=7, model="m"))
        begun.set()
        await asyncio.Event().wait()

    memory.servicer._note = spend_and_wait  # type: ignore[method-assign]  # the stand-in's own hook
    metadata = bearer(memory.deployment.token(), memory.deployment.credential("gateway"))
    call = memory.stub.GetMemory(
        pb.GetMemoryRequest(key="k"), metadata=metadata, timeout=0.3 if ended_by == "deadline" else 30.0
    )
    await asyncio.wait_for(begun.wait(), 5)
    if ended_by == "cancel":
        call.cancel()
    entries = memory.deployment.ledger.entries
    async with asyncio.timeout(5):
        while not entries:  # noqa: ASYNC110 - nothing tells that the server's side has ended
            await asyncio.sleep(0.01)
    (made,) = entries
    row = made.row
    assert (row.op, row.status, row.embedding_tokens, row.recorder) == ("memory.get", status, 7, "memory")
    assert (row.org, row.namespace, row.subject, row.refused) == ("acme", "default", "sa:bot", False)


async def test_what_a_services_failed_call_spent_is_told_to_it_alone(memory: MemoryUnderTest) -> None:
    async def spend_and_fail(request: object) -> None:
        current().usage.merge(Usage(embedding_tokens=7, model="m"))
        raise Conflict("no")

    memory.servicer._note = spend_and_fail  # type: ignore[method-assign]  # the stand-in's own hook
    metadata = bearer(memory.deployment.token(), memory.deployment.credential("gateway"))
    with pytest.raises(grpc.aio.AioRpcError):
        await memory.stub.GetMemory(pb.GetMemoryRequest(key="k"), metadata=metadata, timeout=30.0)
    assert memory.deployment.ledger.entries == []


async def test_refused_calls_are_recorded_too(memory: MemoryUnderTest) -> None:
    with pytest.raises(grpc.aio.AioRpcError):
        await memory.stub.GetMemory(pb.GetMemoryRequest(key="k"))
    with pytest.raises(grpc.aio.AioRpcError):
        await memory.stub.GetMemory(pb.GetMemoryRequest(), metadata=bearer(memory.deployment.token()))
    first, second = (made.row for made in memory.deployment.ledger.entries)
    assert (first.status, first.refused, first.org) == ("UNAUTHENTICATED", True, "_none")
    assert (second.status, second.refused, second.org) == ("INVALID_ARGUMENT", True, "acme")


class LedgerStandIn(ledger_pb2_grpc.LedgerServiceServicer):
    def __init__(self) -> None:
        self.rows: list[ledger_pb2.LedgerRow] = []
        self.batches = 0
        self.arrived = asyncio.Event()
        self.error: Exception | None = None

    async def RecordLedger(self, request: ledger_pb2.RecordLedgerRequest, context: object) -> object:
        self.batches += 1
        self.arrived.set()
        if self.error is not None:
            raise self.error
        self.rows.extend(request.rows)
        return ledger_pb2.RecordLedgerResponse(stored_count=len(request.rows))

    @property
    def service(self) -> Service:
        return Service(ledger_pb2_grpc.add_LedgerServiceServicer_to_server, self, "loom.insights.v1.LedgerService")


@pytest.fixture
async def insights(deployment: Deployment) -> AsyncIterator[tuple[LedgerStandIn, grpc.aio.Channel]]:
    servicer = LedgerStandIn()
    async with (
        deployment.serving(servicer.service, name="insights") as server,
        deployment.channel(server.address, "memory") as channel,
    ):
        yield servicer, channel


def row(namespace: str = "default") -> LedgerEntry:
    request = pb.SetMemoryRequest(key="k", value="v")
    call = Call(op="memory.set", request_id="r", scope=Scope("acme", namespace))
    return entry("memory.set", request, pb.SetMemoryResponse(), call)


async def test_rows_are_sent_together_and_those_left_when_it_closes(
    deployment: Deployment, insights: tuple[LedgerStandIn, grpc.aio.Channel]
) -> None:
    servicer, channel = insights
    async with GrpcLedgerSink(channel, deployment.directory) as sink:
        for _ in range(10):
            sink.record(row())
        async with asyncio.timeout(5):
            await servicer.arrived.wait()
        sink.record(row())
    assert (len(servicer.rows), servicer.batches, sink.dropped_count) == (11, 2, 0)


async def test_digests_of_texts_are_left_out_in_a_restricted_or_unknown_namespace(
    deployment: Deployment, insights: tuple[LedgerStandIn, grpc.aio.Channel]
) -> None:
    servicer, channel = insights
    async with GrpcLedgerSink(channel, deployment.directory) as sink:
        for namespace in ("default", "secret", "nowhere"):
            sink.record(row(namespace))
        async with asyncio.timeout(5):
            await servicer.arrived.wait()
    kept = {one.namespace: sorted(one.args) for one in servicer.rows}
    assert kept == {"default": ["key", "value"], "secret": ["key"], "nowhere": ["key"]}


async def test_a_batch_that_failed_is_counted_and_not_sent_again(
    deployment: Deployment, insights: tuple[LedgerStandIn, grpc.aio.Channel]
) -> None:
    servicer, channel = insights
    servicer.error = BackendUnavailable("no")
    async with GrpcLedgerSink(channel, deployment.directory) as sink:
        sink.record(row())
        async with asyncio.timeout(5):
            await servicer.arrived.wait()
    assert (servicer.batches, sink.dropped_count) == (1, 1)


async def test_rows_wait_while_insights_is_away_and_a_full_buffer_counts(deployment: Deployment) -> None:
    async with (
        deployment.channel("127.0.0.1:1", "memory") as channel,
        GrpcLedgerSink(channel, deployment.directory) as sink,
    ):
        made = row()
        for _ in range(ledger._MAX_BUFFERED + 5):
            sink.record(made)
        assert sink.dropped_count == 5
    assert sink.dropped_count == ledger._MAX_BUFFERED + 5


class FailsOnce(FakeDirectory):
    """A directory with a defect: its first answer is an exception that nothing expects."""

    failed = False

    async def namespace_info(self, org: str, namespace: str) -> NamespaceInfo | None:
        if not self.failed:
            self.failed = True
            raise KeyError("a defect")
        return await super().namespace_info(org, namespace)


async def test_a_defect_loses_its_batch_and_not_the_rows_after_it(
    insights: tuple[LedgerStandIn, grpc.aio.Channel], caplog: pytest.LogCaptureFixture
) -> None:
    servicer, channel = insights
    directory = FailsOnce()
    async with GrpcLedgerSink(channel, directory) as sink:
        sink.record(row())
        async with asyncio.timeout(5):
            while not sink.dropped_count:  # noqa: ASYNC110 - the sink sets no event
                await asyncio.sleep(0.005)
        sink.record(row())
        async with asyncio.timeout(5):
            await servicer.arrived.wait()
    assert (len(servicer.rows), sink.dropped_count) == (1, 1)


async def test_of_strangers_calls_a_few_a_second_are_recorded_and_of_known_callers_all(
    deployment: Deployment, insights: tuple[LedgerStandIn, grpc.aio.Channel]
) -> None:
    servicer, channel = insights
    clock = FakeClock()
    async with GrpcLedgerSink(channel, deployment.directory, clock) as sink:
        for _ in range(100):
            sink.record(entry("memory.get", None, None, Call(op="memory.get"), outcome="UNAUTHENTICATED"))
            sink.record(row())
        clock.advance(1)
        sink.record(entry("memory.get", None, None, Call(op="memory.get"), outcome="UNAUTHENTICATED"))
        async with asyncio.timeout(5):
            await servicer.arrived.wait()
    orgs = [one.org for one in servicer.rows]
    assert (orgs.count("_none"), orgs.count("acme"), sink.dropped_count) == (11, 100, 0)
