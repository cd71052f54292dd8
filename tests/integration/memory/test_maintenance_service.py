"""Maintenance over gRPC: who may ask for it, and what happens when the asker goes away."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support.grpc import Deployment
from support.memory import CONCEPTS, MemoryHarness, memory_over

from loom.memory.v1 import maintenance_pb2 as pb
from loom.memory.v1 import maintenance_pb2_grpc
from loom_cli.reembed import Outcome, follow
from loom_common.clickhouse import ClickHouse
from loom_common.errors import AuthInsufficient, InvalidArgument, LoomError
from loom_memory.app.embedding_fake import FakeEmbedding


class Served(NamedTuple):
    deployment: Deployment
    address: str
    harness: MemoryHarness


@pytest.fixture
async def served(clickhouse: ClickHouse, service_keys: Path) -> AsyncIterator[Served]:
    before = await memory_over(clickhouse, FakeEmbedding(CONCEPTS, model="old"))
    await before.fill({f"k{number}": f"note number {number}" for number in range(9)})
    harness = await memory_over(clickhouse, FakeEmbedding(CONCEPTS, model="new", dim=128))
    deployment = Deployment(service_keys)
    async with deployment.serving(*harness.parts.services()) as server:
        yield Served(deployment, server.address, harness)


async def test_the_operator_is_told_of_every_batch_and_of_the_end(served: Served) -> None:
    served.harness.embedding.poison = {"7"}
    outcome = Outcome(dry_run=False)
    seen: list[int] = []

    def note(message: pb.ReembedResponse) -> None:
        outcome.note(message)
        seen.append(message.done_count)

    async with served.deployment.channel(served.address, "operator") as channel:
        stub = maintenance_pb2_grpc.MaintenanceServiceStub(channel)
        await follow(stub, pb.ReembedRequest(batch_size=4), note)
        with pytest.raises(InvalidArgument):
            await follow(stub, pb.ReembedRequest(key_only=True, staged=True), note)
        with pytest.raises(InvalidArgument):
            await follow(stub, pb.ReembedRequest(in_database="no'name"), note)
    assert seen == [0, 4, 7, 8, 8]
    assert outcome.exit_code == 1
    told = outcome.to_json()
    assert (told["model"], told["total"], told["done"], told["failed"]) == ("new", 9, 8, 1)
    assert [(failure["namespace"], failure["key"]) for failure in told["failures"]] == [("team", "k7")]


@pytest.mark.parametrize("service", ["gateway", None])
async def test_nobody_else_may_ask_for_it(served: Served, service: str | None) -> None:
    token = served.deployment.token("*:admin", org_admin=True)
    async with served.deployment.channel(served.address, service) as channel:
        stub = maintenance_pb2_grpc.MaintenanceServiceStub(channel)
        with pytest.raises(AuthInsufficient):
            async for _ in stub.Reembed(pb.ReembedRequest(), metadata=(("authorization", f"Bearer {token}"),)):
                pass


async def test_who_goes_away_ends_the_run_and_the_next_goes_on(served: Served) -> None:
    outcome = Outcome(dry_run=False)
    embedding = served.harness.embedding
    async with served.deployment.channel(served.address, "operator") as channel:
        stub = maintenance_pb2_grpc.MaintenanceServiceStub(channel)
        begun = asyncio.Event()

        def note(message: pb.ReembedResponse) -> None:
            outcome.note(message)
            if message.done_count:
                embedding.gate.clear()
                begun.set()

        task = asyncio.create_task(follow(stub, pb.ReembedRequest(batch_size=1), note))
        async with asyncio.timeout(20):
            await begun.wait()
            task.cancel()
            with pytest.raises((asyncio.CancelledError, LoomError)):
                await task
            embedding.gate.set()
            await follow(stub, pb.ReembedRequest(resume=True), outcome.note)
    assert outcome.exit_code == 0
    assert outcome.to_json()["total"] < 9
