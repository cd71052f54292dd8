"""Operations that answer several messages, as server-sent events and over gRPC, to every end that they can have.

No public operation does so yet, so one stands in: it counts, and notes how it ended.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message
from support.gateway import GatewayUnderTest, running_gateway
from support.tasks import eventually, no_task_left

from loom.memory.v1 import memory_pb2 as pb
from loom_common.errors import NotFound
from loom_common.ops import OpSpec, all_ops, public_ops
from loom_common.server import Service
from loom_gateway.calls.admission import AdmissionLimits
from loom_gateway.contract.catalogue import Catalogue
from loom_gateway.http import streams

COUNT: OpSpec = replace(
    all_ops()["memory.get"], name="test.count", method="/test.v1.CountService/Count", response_streaming=True
)
CATALOGUE = Catalogue({**public_ops(), COUNT.name: COUNT})


@dataclass
class Counting:
    """Counts to `key`; `0` counts for ever, `-1` fails at once, and `-2` after the first message."""

    ended: asyncio.Event = field(default_factory=asyncio.Event)
    how: str = ""
    deadlines: list[float | None] = field(default_factory=list)

    async def count(self, request: pb.GetMemoryRequest, context: Any) -> AsyncIterator[pb.GetMemoryResponse]:
        self.ended.clear()
        self.deadlines.append(context.time_remaining())
        wanted, number = int(request.key), 0
        try:
            while wanted <= 0 or number < wanted:
                if wanted == -1 or (wanted == -2 and number == 1):
                    await NotFound("It is not there.", detail={"key": request.key}).abort(context)
                number += 1
                yield pb.GetMemoryResponse(found=True, memory=pb.Memory(key=str(number)))
                await asyncio.sleep(0.005)
            self.how = "whole"
        except (asyncio.CancelledError, GeneratorExit):
            self.how = "cancelled"
            raise
        except BaseException:
            self.how = "failed"
            raise
        finally:
            self.ended.set()

    def service(self) -> Service:
        def add(_servicer: object, server: Any) -> None:
            handler = grpc.unary_stream_rpc_method_handler(
                self.count, pb.GetMemoryRequest.FromString, pb.GetMemoryResponse.SerializeToString
            )
            server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler("test.v1.CountService", {"Count": handler}),)
            )

        return Service(add, object(), "test.v1.CountService")


@asynccontextmanager
async def counting(tmp_path: Path, **limits: Any) -> AsyncIterator[tuple[GatewayUnderTest, Counting]]:
    held = Counting()
    admission = AdmissionLimits(**limits)
    async with running_gateway(tmp_path, more=[held.service()], catalogue=CATALOGUE, admission=admission) as gateway:
        async with gateway.client() as client:  # the channel to the service is open before tasks are counted
            assert (await client.post("/v1/test.count", json={"key": "1"})).status_code == 200
        yield gateway, held


def frames(text: str) -> list[str]:
    return [frame.removeprefix("data: ") for frame in text.split("\n\n") if frame]


async def recorded(gateway: GatewayUnderTest, count: int) -> list[tuple[str, str]]:
    await eventually(lambda: len(gateway.ledger.entries) >= count)
    return [(entry.row.op, entry.row.status) for entry in gateway.ledger.entries]


async def test_a_stream_is_sent_as_it_comes_ends_with_a_word_and_leaves_one_row(tmp_path: Path) -> None:
    async with counting(tmp_path) as (gateway, held), gateway.client(**{"Accept-Encoding": "gzip"}) as client:
        async with no_task_left():
            answer = await client.post("/v1/test.count", json={"key": "3"})
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["x-request-id"]
        assert "content-encoding" not in answer.headers
        *messages, last = frames(answer.text)
        assert [json.loads(message)["memory"]["key"] for message in messages] == ["1", "2", "3"]
        assert last == "[DONE]"
        assert held.how == "whole"
        assert await recorded(gateway, 2) == [("test.count", "ok")] * 2


async def test_a_client_that_leaves_ends_the_stream_on_every_side_with_no_task_left(tmp_path: Path) -> None:
    async with counting(tmp_path) as (gateway, held), gateway.client() as client:
        async with no_task_left():
            async with client.stream("POST", "/v1/test.count", json={"key": "0"}) as answer:
                lines = answer.aiter_lines()
                assert json.loads((await anext(lines)).removeprefix("data: "))["memory"]["key"] == "1"
            async with asyncio.timeout(5):
                await held.ended.wait()
        assert held.how == "cancelled"
        assert await recorded(gateway, 2) == [("test.count", "ok"), ("test.count", "CANCELLED")]


async def test_a_service_that_goes_away_ends_the_stream_with_an_error_and_no_last_word(tmp_path: Path) -> None:
    async with counting(tmp_path) as (gateway, held), gateway.client() as client:
        async with no_task_left():
            answer = await client.post("/v1/test.count", json={"key": "-2"})
        first, error = frames(answer.text)
        assert json.loads(first)["memory"]["key"] == "1"
        assert json.loads(error)["error"]["code"] == "NOT_FOUND"
        assert held.how == "failed"
        assert await recorded(gateway, 2) == [("test.count", "ok"), ("test.count", "NOT_FOUND")]


async def test_what_fails_before_the_first_message_is_answered_as_any_error(tmp_path: Path) -> None:
    async with counting(tmp_path) as (gateway, _), gateway.client() as client:
        async with no_task_left():
            for body, status in (({"key": "-1"}, 404), ({}, 422), ({"kee": "1"}, 400)):
                answer = await client.post("/v1/test.count", json=body)
                assert answer.status_code == status, answer.text
                assert answer.headers["content-type"] == "application/json"
        async with gateway.client(None) as stranger:
            assert (await stranger.post("/v1/test.count", json={"key": "1"})).status_code == 401


async def test_a_stream_has_no_deadline_but_its_callers_own(tmp_path: Path) -> None:
    async with counting(tmp_path) as (gateway, held), gateway.client() as client:
        assert held.deadlines == [None]
        async with no_task_left():
            answer = await client.post("/v1/test.count", json={"key": "0"}, headers={"X-Loom-Timeout-Ms": "200"})
        *_, last = frames(answer.text)
        assert json.loads(last)["error"]["code"] == "DEADLINE_EXCEEDED"


async def test_streams_beyond_their_places_are_refused(tmp_path: Path) -> None:
    async with (
        counting(tmp_path, max_streams=1) as (gateway, _),
        gateway.client() as client,
        client.stream("POST", "/v1/test.count", json={"key": "0"}) as first,
    ):
        await anext(first.aiter_lines())
        refused = await client.post("/v1/test.count", json={"key": "1"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "OVERLOADED")


async def test_silence_is_filled_with_comments_and_a_client_reads_past_them() -> None:
    release = asyncio.Event()
    sent: list[bytes] = []

    async def messages() -> AsyncIterator[Message]:
        await release.wait()
        yield pb.GetMemoryResponse(found=True)

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))
        if len(sent) == 3:
            release.set()

    async with no_task_left():
        await streams.send_events(messages(), send, "r", beat_s=0.01)
    assert sent[0] == b""
    assert sent[1].startswith(b":")
    assert sent[-1] == streams.DONE


async def test_over_grpc_too_a_caller_that_leaves_ends_the_work(tmp_path: Path) -> None:
    async with counting(tmp_path) as (gateway, held):
        channel = gateway.channels["memory"]
        call = channel.unary_stream(
            COUNT.method, pb.GetMemoryRequest.SerializeToString, pb.GetMemoryResponse.FromString
        )
        async with no_task_left():
            stream = call(pb.GetMemoryRequest(key="0"))
            async for message in stream:
                assert message.memory.key == "1"
                break
            stream.cancel()
            async with asyncio.timeout(5):
                await held.ended.wait()
        assert held.how == "cancelled"


def test_streams_are_no_operations_of_one_answer_and_are_described_as_what_they_are() -> None:
    from loom_gateway.openapi.document import openapi_document

    assert COUNT.name not in CATALOGUE
    document: Any = openapi_document(CATALOGUE, version="1")
    answer = document["paths"]["/v1/test.count"]["post"]["responses"]["200"]
    assert list(answer["content"]) == ["text/event-stream"]
