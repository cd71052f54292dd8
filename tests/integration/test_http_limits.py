"""Time, size, coding and number of calls, as an HTTP caller meets them."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from backports import zstd
from support.gateway import GatewayUnderTest, running_gateway
from support.tasks import eventually

from loom.memory.v1 import memory_pb2
from loom_gateway.calls.admission import AdmissionLimits

pytestmark = pytest.mark.asyncio(loop_scope="module")

PACK = {"gzip": gzip.compress, "zstd": zstd.compress}
UNPACK = {"gzip": gzip.decompress, "zstd": zstd.decompress}
LONG = "a memory of some length, " * 400


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayUnderTest]:
    limits = AdmissionLimits(max_calls=1, max_waiting=1, wait_s=30)
    async with running_gateway(tmp_path_factory.mktemp("limits"), admission=limits) as found:
        yield found


def code(answer: httpx.Response) -> str:
    return str(answer.json()["error"]["code"])


@pytest.mark.parametrize("coding", PACK)
async def test_bodies_and_answers_go_packed_both_ways(gateway: GatewayUnderTest, coding: str) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": coding, "Accept-Encoding": coding}
    async with gateway.client(**headers) as client:
        body = PACK[coding](json.dumps({"key": "long", "value": LONG}).encode())
        assert (await client.post("/v1/memory.set", content=body)).status_code == 200
        async with client.stream("POST", "/v1/memory.get", content=PACK[coding](b'{"key": "long"}')) as answer:
            raw = b"".join([piece async for piece in answer.aiter_raw()])
    assert answer.headers["content-encoding"] == coding
    assert "Accept-Encoding" in answer.headers["vary"]
    assert int(answer.headers["content-length"]) == len(raw) < len(LONG) / 4
    assert json.loads(UNPACK[coding](raw))["memory"]["value"] == LONG


async def test_a_short_answer_and_one_that_nobody_asked_to_pack_stay_as_they_are(gateway: GatewayUnderTest) -> None:
    async with gateway.client(**{"Accept-Encoding": "identity"}) as client:
        assert "content-encoding" not in (await client.post("/v1/memory.get", json={"key": "long"})).headers
    async with gateway.client(**{"Accept-Encoding": "gzip"}) as client:
        short = await client.post("/v1/memory.get", json={"key": "no such"})
    assert "content-encoding" not in short.headers
    assert short.headers["vary"] == "Accept-Encoding"


@pytest.mark.parametrize("coding", PACK)
@pytest.mark.parametrize("path", ["/v1/memory.set", "/mcp"])
async def test_a_packed_body_that_is_too_large_unpacked_is_refused(
    gateway: GatewayUnderTest, coding: str, path: str
) -> None:
    bomb = PACK[coding](b'{"value": "' + b" " * (8 * 1024 * 1024) + b'"}')
    async with gateway.client(**{"Content-Type": "application/json", "Content-Encoding": coding}) as client:
        answer = await client.post(path, content=bomb, timeout=30)  # the first call of MCP loads it
    assert (answer.status_code, code(answer)) == (413, "PAYLOAD_TOO_LARGE")


async def test_the_callers_time_bounds_the_call_and_the_service_is_told(gateway: GatewayUnderTest) -> None:
    async with gateway.client(**{"X-Loom-Timeout-Ms": "5000"}) as client:
        assert (await client.post("/v1/memory.get", json={"key": "k"})).status_code == 200
        left_s = gateway.services.seen[-1].call.time_left_s()
        assert left_s is not None
        assert left_s < 5
        answer = await client.post("/v1/memory.get", json={"key": "k"}, headers={"X-Loom-Timeout-Ms": "1"})
        assert (answer.status_code, code(answer)) == (504, "DEADLINE_EXCEEDED")
    # More than the gateway allows is no more than that.
    async with gateway.client(**{"X-Loom-Timeout-Ms": "999999999"}) as client:
        assert (await client.post("/v1/memory.get", json={"key": "k"})).status_code == 200


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "x", "", "1e3", "1234567890"])
async def test_a_time_that_is_no_number_of_milliseconds_is_refused_by_name(
    gateway: GatewayUnderTest, value: str
) -> None:
    async with gateway.client(**{"X-Loom-Timeout-Ms": value}) as client:
        answer = await client.post("/v1/memory.get", json={"key": "k"})
    assert (answer.status_code, code(answer)) == (422, "INVALID_ARGUMENT")
    assert answer.json()["error"]["detail"]["field"] == "x-loom-timeout-ms"


async def test_a_body_that_comes_slower_than_the_callers_time_ends_with_it(gateway: GatewayUnderTest) -> None:
    release = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await release.wait()

    headers = {"X-Loom-Timeout-Ms": "100", "Content-Type": "application/json"}
    async with gateway.client(**headers) as client:
        call = asyncio.create_task(client.post("/v1/memory.get", content=slow()))
        await eventually(lambda: gateway.ledger.entries[-1].row.status == "DEADLINE_EXCEEDED")
        release.set()
        await asyncio.wait([call])


async def test_calls_beyond_the_places_and_the_line_are_refused_and_other_services_answer(
    gateway: GatewayUnderTest,
) -> None:
    release = asyncio.Event()
    begun = 0

    async def held(_request: Any) -> memory_pb2.GetMemoryResponse:
        nonlocal begun
        begun += 1
        await release.wait()
        return memory_pb2.GetMemoryResponse()

    gateway.services.replies["memory.get"] = held
    try:
        async with gateway.client() as client:
            calls = [asyncio.create_task(client.post("/v1/memory.get", json={"key": "k"})) for _ in range(2)]
            await eventually(lambda: begun == 1)
            refused = await client.post("/v1/memory.get", json={"key": "k"})
            assert (refused.status_code, code(refused)) == (503, "OVERLOADED")
            assert int(refused.headers["retry-after"]) >= 1
            assert gateway.ledger.entries[-1].row.refused
            for op in ("memory.set", "usage.summary", "namespace.list"):
                body = {"value": "x"} if op == "memory.set" else {}
                assert (await client.post(f"/v1/{op}", json=body)).status_code == 200
            release.set()
            assert [(await call).status_code for call in calls] == [200, 200]
            assert begun == 2
    finally:
        del gateway.services.replies["memory.get"]


async def test_liveness_asks_nothing_of_anyone(gateway: GatewayUnderTest) -> None:
    gateway.probe.error = OSError("away")
    try:
        async with gateway.client(None) as client:
            assert (await client.get("/v1/health/live")).json() == {"live": True}
    finally:
        gateway.probe.error = None
