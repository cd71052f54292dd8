"""A call for a client: word of how it goes on, and what is left when its client goes."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from loom.memory.v1 import memory_pb2
from loom_common.auth.claims import Claims
from loom_common.errors import BackendUnavailable
from loom_gateway.calls.caller import Caller, Transport
from loom_gateway.contract.catalogue import Catalogue
from loom_gateway.mcp.calling import OpCaller
from loom_gateway.mcp.connection import CONNECTION_STATE, Connection
from loom_gateway.mcp.sessions import Session
from loom_gateway.mcp.toolsets import Toolset

OP = Catalogue()["memory.get"]


class Calls:
    """Stands where calls go: answers when it is told to."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.ended = asyncio.Event()
        self.error: Exception | None = None

    async def run(self, _op: Any, _caller: Any, read: Any) -> Any:
        try:
            await self.go_on.wait()
        finally:
            self.ended.set()
        if self.error is not None:
            raise self.error
        return await read()


class Client:
    """What a client is told before its answer."""

    def __init__(self, *, wants_progress: bool) -> None:
        self.told: list[tuple[float, str]] = []
        self.begun = asyncio.Event()
        self.enough = asyncio.Event()
        claims = Claims("sa:bot", "acme", (), jti="j", iat=0, exp=1)
        known = Connection(Caller(Transport.MCP, "req"), claims, Toolset.DEFAULT, Session())
        self.context: Any = SimpleNamespace(
            meta={"progress_token": 1} if wants_progress else None,
            params={},
            protocol_version="2026-07-28",
            request=SimpleNamespace(scope={"state": {CONNECTION_STATE: known}}),
            request_id=1,
            session=self,
        )

    async def report_progress(self, done: float, _total: float | None, message: str) -> None:
        self.told.append((done, message))
        self.begun.set()
        if len(self.told) == 3:
            self.enough.set()


async def request() -> Any:
    return memory_pb2.GetMemoryResponse(found=False)


async def test_a_call_that_takes_long_is_told_of_again_and_again_until_it_ends() -> None:
    calls, client = Calls(), Client(wants_progress=True)
    caller = OpCaller(calls, Catalogue(), beat_s=0.001)  # type: ignore[arg-type]  # what answers, as the test has it
    running = asyncio.create_task(caller.run(client.context, OP, request, "memory_get"))
    async with asyncio.timeout(30):
        await client.enough.wait()
        calls.go_on.set()
        await running
    told = list(client.told)
    assert told[0] == (0, "memory.get has begun")
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    await asyncio.sleep(0)
    assert client.told == told


async def test_a_client_that_does_not_ask_is_told_nothing() -> None:
    calls, client = Calls(), Client(wants_progress=False)
    calls.go_on.set()
    caller = OpCaller(calls, Catalogue(), beat_s=0)  # type: ignore[arg-type]  # as above
    await caller.run(client.context, OP, request, "memory_get")
    assert client.told == []


async def test_a_call_ends_with_whoever_waits_for_it_and_leaves_no_task() -> None:
    calls, client = Calls(), Client(wants_progress=True)
    before = asyncio.all_tasks()
    caller = OpCaller(calls, Catalogue())  # type: ignore[arg-type]  # as above
    running = asyncio.create_task(caller.run(client.context, OP, request, "memory_get"))
    async with asyncio.timeout(30):
        await client.begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert calls.ended.is_set()
    assert asyncio.all_tasks() == before


async def test_a_refusal_is_the_callers_to_word() -> None:
    calls, client = Calls(), Client(wants_progress=True)
    calls.go_on.set()
    calls.error = BackendUnavailable("away")
    with pytest.raises(BackendUnavailable):
        await OpCaller(calls, Catalogue()).run(client.context, OP, request, "memory_get")  # type: ignore[arg-type]  # as above
