"""Rates and concurrency."""

import asyncio
from typing import Any, cast

import grpc
import pytest
from support.grpc import MemoryUnderTest, bearer, error_info, reason_of, retry_info

from loom.memory.v1 import memory_pb2 as pb
from loom_common.auth.claims import Claims, NamespaceGrant, Role
from loom_common.call import Call
from loom_common.clock import FakeClock
from loom_common.errors import RateLimited
from loom_common.interceptors.limits import RateLimitInterceptor
from loom_common.interceptors.rpc import Rpc
from loom_common.ops import OpRole, all_ops
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


def test_a_call_that_counts_for_several_is_taken_from_all_of_them_or_from_none() -> None:
    clock = FakeClock()
    limiter = RateLimiter({"default": 0.5}, clock)
    assert limiter.take_each("default", {"token": 1.0, "org": 4.0}) == 0.0
    # The token's is spent: the organisation's other three stay for others.
    assert limiter.take_each("default", {"token": 1.0, "org": 4.0}) == pytest.approx(2.0)
    assert [limiter.take_each("default", {f"token {n}": 1.0, "org": 4.0}) for n in range(3)] == [0.0] * 3
    assert limiter.take_each("default", {"another": 1.0, "org": 4.0}) == pytest.approx(0.5)
    assert limiter.take("default", "another") == 0.0


async def answered(rpc: Rpc, request: object) -> bool:
    return True


async def test_a_token_shares_its_rate_with_what_was_made_from_it_and_an_organisation_has_one_too() -> None:
    interceptor = RateLimitInterceptor(RateLimiter({"default": 0.5}, FakeClock()), org_times=3.0)

    async def outcome(**facts: Any) -> bool:
        claims = Claims("sa:bot", "acme", (NamespaceGrant("team", Role.WRITER),), iat=0, exp=1, **facts)
        rpc = Rpc("/m", all_ops()["memory.get"], Call(claims=claims), cast(Any, None))
        try:
            return bool(await interceptor.around(rpc, None, answered))
        except RateLimited:
            return False

    assert await outcome(jti="first")
    assert not await outcome(jti="first")
    assert not await outcome(jti="child", parents=("first",))
    assert not await outcome(jti="grandchild", parents=("child", "first"))
    assert await outcome(jti="five minutes", sid="session")
    assert not await outcome(jti="the next five", sid="session")
    assert await outcome(jti="third")
    assert not await outcome(jti="fourth"), "the organisation has made its three"


async def test_callers_without_a_token_take_nothing_from_an_organisation_whatever_its_name() -> None:
    interceptor = RateLimitInterceptor(RateLimiter({"default": 0.5}, FakeClock()), org_times=1.0)
    op = next(op for op in all_ops().values() if op.role is OpRole.OPEN and not op.internal)
    team = (NamespaceGrant("team", Role.WRITER),)
    assert await interceptor.around(Rpc("/m", op, Call(), cast(Any, None)), None, answered)
    with pytest.raises(RateLimited):
        await interceptor.around(Rpc("/m", op, Call(), cast(Any, None)), None, answered)
    claims = Claims("sa:bot", "strangers", team, iat=0, exp=1, jti="first")
    assert await interceptor.around(Rpc("/m", op, Call(claims=claims), cast(Any, None)), None, answered)


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
        await stub.GetMemory(GET, metadata=bearer(memory.deployment.token()))  # another token of the same subject


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
