"""Rates and concurrency."""

import asyncio

import grpc
import pytest
from support.grpc import MemoryUnderTest, bearer, error_info, reason_of, retry_info

from loom.memory.v1 import memory_pb2 as pb
from loom_common.clock import FakeClock
from loom_common.rates import RateLimiter

GET = pb.GetMemoryRequest(key="k")


def test_a_bucket_holds_two_seconds_and_fills_at_its_rate() -> None:
    clock = FakeClock()
    limiter = RateLimiter({"default": 10}, clock)
    assert [limiter.take("default", "a") for _ in range(20)] == [0.0] * 20
    assert limiter.take("default", "a") == pytest.approx(0.1)
    clock.advance(0.1)
    assert limiter.take("default", "a") == 0.0
    assert limiter.take("default", "a") > 0


def test_callers_and_classes_have_buckets_of_their_own() -> None:
    limiter = RateLimiter({"default": 0.5, "search": 0.5}, FakeClock())
    assert limiter.take("default", "a") == 0.0
    assert limiter.take("default", "a") > 0
    assert limiter.take("default", "b") == 0.0
    assert limiter.take("search", "a") == 0.0


def test_a_class_without_a_rate_has_the_default_one() -> None:
    limiter = RateLimiter({"default": 0.5}, FakeClock())
    assert limiter.take("other", "a") == 0.0
    assert limiter.take("other", "a") == pytest.approx(2.0)


async def test_a_caller_beyond_its_rate_is_told_when_to_come_back(memory: MemoryUnderTest) -> None:
    async with (
        memory.deployment.serving(memory.servicer.service, LOOM_RATE_LIMIT_DEFAULT_PER_S=0.5) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        stub = type(memory.stub)(channel)
        token = memory.deployment.token()
        await stub.GetMemory(GET, metadata=bearer(token))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.GetMemory(GET, metadata=bearer(token))
        assert error_info(caught.value).reason == "RATE_LIMITED"
        assert 0 < retry_info(caught.value).retry_delay.ToMilliseconds() <= 2000
        await stub.GetMemory(GET, metadata=bearer(memory.deployment.token(subject="sa:other")))


async def test_calls_beyond_the_servers_limit_are_refused_at_once(memory: MemoryUnderTest) -> None:
    release, begun = asyncio.Event(), asyncio.Event()

    async def wait(request: object) -> None:
        begun.set()
        await release.wait()

    memory.servicer._note = wait  # type: ignore[method-assign]  # the stand-in's own hook
    async with (
        memory.deployment.serving(memory.servicer.service, LOOM_GRPC_MAX_CONCURRENT_CALLS=1) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        stub = type(memory.stub)(channel)
        token = memory.deployment.token()
        first = asyncio.ensure_future(stub.GetMemory(GET, metadata=bearer(token)))
        async with asyncio.timeout(5):
            await begun.wait()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.GetMemory(GET, metadata=bearer(token))
        assert (caught.value.code(), reason_of(caught.value)) == (grpc.StatusCode.UNAVAILABLE, "OVERLOADED")
        release.set()
        await first
        await stub.GetMemory(GET, metadata=bearer(token))
