"""Calls within the process, against the same calls over a socket: nobody gets more, less or anything else by them."""

import asyncio
import contextvars
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from support.grpc import Deployment, MemoryStandIn

from loom.common.v1 import status_pb2, status_pb2_grpc
from loom.llm.v1 import llm_pb2, llm_pb2_grpc
from loom.memory.v1 import memory_pb2 as pb
from loom.memory.v1 import memory_pb2_grpc as pb_grpc
from loom_common.attribution import Attribution
from loom_common.call import Call, bind, current
from loom_common.errors import BackendUnavailable, Conflict, DeadlineExceeded, LoomError
from loom_common.local_server import local_calls
from loom_common.server import Service
from loom_common.usage import Usage

MAX_BYTES = 64 * 1024
REQUEST_ID = "request-of-the-test"


class Acting(MemoryStandIn):
    """Does what the key of a request says."""

    def __init__(self) -> None:
        super().__init__()
        self.local: list[bool] = []
        self.running = asyncio.Event()
        self.ended = asyncio.Event()
        self.kept = pb.GetMemoryResponse(found=True)
        self.seen: list[Any] = []

    async def GetMemory(self, request: pb.GetMemoryRequest, context: Any) -> pb.GetMemoryResponse:
        self.local.append(context.peer() == "local:")
        call = current()
        assert call.attribution is not None
        self.seen.append((call.claims, call.scope, call.attribution, call.peer_service, call.run_id, call.request_id))
        current().usage.merge(Usage(embedding_tokens=7))
        match request.key:
            case "conflict":
                raise Conflict("Taken.", detail={"key": request.key}, retry_after_s=2.0)
            case "broken":
                raise RuntimeError("a secret")
            case "large":
                return pb.GetMemoryResponse(memory=pb.Memory(value="x" * 2 * MAX_BYTES))
            case "slow":
                self.running.set()
                try:
                    await asyncio.Future()
                finally:
                    self.ended.set()
            case "late":
                while context.time_remaining() > 0:
                    pass
            case "changed":
                request.key = "changed by the handler"
        return self.kept


@dataclass(slots=True)
class Ways:
    """One server, and the stub of a service's channel by each way to it."""

    deployment: Deployment
    servicer: Acting
    local: "pb_grpc.MemoryServiceAsyncStub"
    socket: "pb_grpc.MemoryServiceAsyncStub"

    async def both(self, key: str, **more: Any) -> tuple[Any, Any]:
        """Returns what became of the same call by each way, and checks that each went its own."""
        outcomes = []
        for way, stub in (("local", self.local), ("socket", self.socket)):
            self.servicer.local.clear()
            outcomes.append(await self.outcome(stub, key, **more))
            assert all(local == (way == "local") for local in self.servicer.local)
        return outcomes[0], outcomes[1]

    async def outcome(
        self, stub: Any, key: str, *, namespace: str = "", token: str | None = "", calling: Any = None, **more: Any
    ) -> tuple[Any, ...]:
        """Returns everything that a caller, the handler and the ledger see of one call."""
        self.servicer.seen.clear()
        self.deployment.ledger.entries.clear()
        request = pb.GetMemoryRequest(key=key, **({"namespace": namespace} if namespace else {}))
        call = Call(request_id=REQUEST_ID, token=TOKENS["writer"] if token == "" else token, run_id="run")
        call.attribution = Attribution(org="acme", namespace="default", subject="sa:bot", feature="test")
        for name, value in (calling or {}).items():
            setattr(call, name, value)
        with bind(call):
            try:
                found: Any = await stub.GetMemory(request, **more)
            except LoomError as error:
                cause = error.__cause__
                raw: Any = None
                if isinstance(cause, grpc.aio.AioRpcError):
                    raw = (cause.code(), cause.details(), [tuple(pair) for pair in cause.trailing_metadata()])
                found = (type(error), error.message, error.detail, error.retry_after_s, error.request_id, raw)
            except Exception as error:  # noqa: BLE001 - what gRPC itself refuses to send, in a class that it hides
                found = type(error)
        rows = [type(entry.row)() for entry in self.deployment.ledger.entries]
        for row, entry in zip(rows, self.deployment.ledger.entries, strict=True):
            row.CopyFrom(entry.row)
            row.ClearField("latency_ms")
            row.ClearField("occurred_at")
        return found, list(self.servicer.seen), rows, call.usage, request


TOKENS: dict[str, str] = {}


@pytest.fixture
async def ways(deployment: Deployment) -> AsyncIterator[Ways]:
    """A memory service, and a gateway's channel to it by each way."""
    servicer = Acting()
    TOKENS["writer"], TOKENS["other"] = deployment.token(), deployment.token(org="another")
    more = {"max_message_bytes": MAX_BYTES}
    with local_calls():
        async with (
            deployment.serving(servicer.service, LOOM_GRPC_MAX_MESSAGE_BYTES=MAX_BYTES) as server,
            deployment.channel(server.address, "gateway", **more) as local,
            # Opened as by somebody who is in no such block, or in another process.
            contextvars.Context().run(deployment.channel, server.address, "gateway", **more) as socket,
        ):
            stubs: list[Any] = [pb_grpc.MemoryServiceStub(channel) for channel in (local, socket)]
            yield Ways(deployment, servicer, *stubs)


CALLS: dict[str, dict[str, Any]] = {
    "fine": {"key": "fine"},
    "of another namespace": {"key": "fine", "namespace": "team"},
    "with no namespace that is its": {"key": "fine", "namespace": "secret"},
    "without a token": {"key": "fine", "token": None},
    "with a token that is none": {"key": "fine", "token": "none"},
    "breaking a rule": {"key": "k" * 5000},
    "with a NUL": {"key": "a\0b"},
    "that the service refuses": {"key": "conflict"},
    "that breaks the service": {"key": "broken"},
    "with too much of an answer": {"key": "large"},
    "whose caller has no time left": {"key": "fine", "calling": {"deadline": 1.0}},
    "with a credential that is none": {"key": "fine", "metadata": (("x-loom-service", "none"),)},
    "with a header of its own": {"key": "fine", "metadata": (("x-loom-namespace", "default"),)},
    "with two that differ": {"key": "fine", "namespace": "default", "metadata": (("x-loom-namespace", "team"),)},
    "with an attribution that is none": {"key": "fine", "metadata": (("loom-attribution-bin", b"none"),)},
}

UNUSUAL: dict[str, dict[str, Any]] = {
    "too large": {"key": "k" * 2 * MAX_BYTES},
    "with a header that gRPC refuses": {"key": "fine", "metadata": (("x-loom-namespace", "caf\u00e9"),)},
    "with a name that gRPC refuses": {"key": "fine", "metadata": (("X-Upper", "a"),)},
    "with a header that nobody sends": {"key": "fine", "metadata": (("x-odd", "a"),)},
    "with more headers than are ever taken": {"key": "fine", "metadata": (("x-loom-run-id", "r" * 70_000),)},
    "sent as another would": {"key": "fine", "wait_for_ready": True},
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_within_the_process_ends_as_it_does_over_a_socket(ways: Ways, name: str) -> None:
    within, over = await ways.both(**CALLS[name])
    assert within == over


@pytest.mark.parametrize("name", UNUSUAL)
async def test_an_unusual_call_goes_over_the_socket(ways: Ways, name: str) -> None:
    within = await ways.outcome(ways.local, **UNUSUAL[name])
    assert not any(ways.servicer.local)
    assert within == await ways.outcome(ways.socket, **UNUSUAL[name])


async def test_a_call_that_takes_too_long_ends_in_time_whichever_end_says_so_first(ways: Ways) -> None:
    async with asyncio.timeout(5):
        for (kind, *_, raw), _, _, _, _ in await ways.both("slow", timeout=0.1):
            assert (kind, raw[0]) == (DeadlineExceeded, grpc.StatusCode.DEADLINE_EXCEEDED)
            await ways.servicer.ended.wait()


async def test_what_a_late_answer_spent_is_recorded_by_the_service_and_not_taken_by_its_caller_too(ways: Ways) -> None:
    # The handler holds the loop until the time is over, so that its answer is there before the caller's own timer.
    found, _, rows, usage, _ = await ways.outcome(ways.local, "late", timeout=0.05)
    assert found[0] is DeadlineExceeded
    assert [row.embedding_tokens for row in rows] == [7]
    assert not usage


async def test_a_caller_that_leaves_ends_the_handler_and_does_not_wait_for_it(ways: Ways) -> None:
    rows = []
    for stub in (ways.local, ways.socket):
        ways.servicer.running.clear()
        ways.servicer.ended.clear()
        call = asyncio.create_task(ways.outcome(stub, "slow"))
        async with asyncio.timeout(5):
            await ways.servicer.running.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await ways.servicer.ended.wait()
            await asyncio.sleep(0)
        rows.append([(entry.row.status, entry.row.op) for entry in ways.deployment.ledger.entries])
    assert rows[0] == rows[1]


async def test_neither_side_sees_what_the_other_does_to_a_message(ways: Ways) -> None:
    found, *_, request = await ways.outcome(ways.local, "changed")
    assert ways.servicer.local == [True]
    assert request.key == "changed"
    found.found = False
    assert ways.servicer.kept.found


async def test_a_handler_sees_nothing_of_what_its_caller_has_bound(ways: Ways) -> None:
    await ways.outcome(ways.local, "fine", calling={"op": "of the caller"})
    outside = current()
    assert (outside.op, outside.request_id) == ("", "")


@pytest.mark.parametrize("by_its_block", [False, True])
async def test_a_closed_channel_ends_its_calls(deployment: Deployment, by_its_block: bool) -> None:
    servicer = Acting()
    with local_calls():
        async with deployment.serving(servicer.service) as server:
            channel = deployment.channel(server.address, "gateway")
            stub: Any = pb_grpc.MemoryServiceStub(channel)
            with bind(Call(token=deployment.token(), attribution=Attribution(org="acme"))):
                call = asyncio.ensure_future(stub.GetMemory(pb.GetMemoryRequest(key="slow")))
                await servicer.running.wait()
                await (channel.__aexit__(None, None, None) if by_its_block else channel.close())
                with pytest.raises(BackendUnavailable):
                    await call


async def test_a_server_that_stops_lets_running_calls_end_and_takes_no_more(deployment: Deployment) -> None:
    servicer = Acting()
    with local_calls() as servers:
        async with deployment.serving(servicer.service, LOOM_DRAIN_S=0.05) as server:
            channel = deployment.channel(server.address, "gateway")
            stub: Any = pb_grpc.MemoryServiceStub(channel)
            assert channel.get_state() is grpc.ChannelConnectivity.READY
            with bind(Call(token=deployment.token(), attribution=Attribution(org="acme"))):
                call = asyncio.ensure_future(stub.GetMemory(pb.GetMemoryRequest(key="slow")))
                await servicer.running.wait()
        with pytest.raises(BackendUnavailable):
            await call
        assert servers.at(server.address) is None
        await channel.close()


class Streaming(llm_pb2_grpc.LlmServiceServicer):
    async def StreamComplete(self, request: Any, context: Any) -> AsyncIterator[llm_pb2.StreamCompleteResponse]:
        assert context.peer() != "local:"
        yield llm_pb2.StreamCompleteResponse()


async def test_the_status_is_asked_within_the_process_and_streams_go_over_the_socket(deployment: Deployment) -> None:
    service = Service(llm_pb2_grpc.add_LlmServiceServicer_to_server, Streaming(), "loom.llm.v1.LlmService")
    with local_calls():
        async with (
            deployment.serving(service, name="llm") as server,
            deployment.channel(server.address, "memory") as channel,
        ):
            stub: Any = llm_pb2_grpc.LlmServiceStub(channel)
            status: Any = status_pb2_grpc.StatusServiceStub(channel)
            with bind(Call(attribution=Attribution(org="acme"))):
                answer = await status.GetStatus(status_pb2.GetStatusRequest())
                assert answer.service == "llm"
                assert channel.get_state() is grpc.ChannelConnectivity.READY
                messages = stub.StreamComplete(llm_pb2.StreamCompleteRequest(user="hi"))
                assert len([message async for message in messages]) == 1
