"""The switch over an organisation's calls to models, from the call that turns it to the gates that follow it."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from support.identity import RunningIdentity, bearer, running_identity

from loom.identity.v1 import identity_pb2
from loom_common.attribution import Attribution
from loom_common.auth.directory import GrpcDirectory
from loom_common.auth.watch import IdentityWatch
from loom_common.call import Call, bind
from loom_common.clickhouse import ClickHouse
from loom_common.errors import AuthInsufficient, InvalidArgument, ModelCallsOff
from loom_common.model_calls.gate import ModelCallGate
from loom_common.model_calls.policy import InferencePolicy
from loom_common.model_calls.reads import DirectoryReads
from loom_common.model_calls.switch import FollowedSwitch

REFRESH_S = 0.2


async def until(holds: Callable[[], bool], within_s: float) -> None:
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110 - what is waited for lies behind a socket
            await asyncio.sleep(0.01)


async def switch(identity: RunningIdentity, *, enabled: bool, org: str = "acme") -> identity_pb2.SetModelCallsResponse:
    return await identity.operator.SetModelCalls(identity_pb2.SetModelCallsRequest(org=org, enabled=enabled))


async def test_an_administrator_switches_and_every_service_follows(clickhouse: ClickHouse, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(
            running_identity(clickhouse, tmp_path / "keys", policy_refresh_s=REFRESH_S)
        )
        two = await stack.enter_async_context(
            running_identity(clickhouse, tmp_path / "keys", policy_refresh_s=REFRESH_S)
        )
        near = await stack.enter_async_context(IdentityWatch(one.channel("memory")))
        far = await stack.enter_async_context(IdentityWatch(two.channel("memory")))
        assert await near.wait_ready(10)
        assert await far.wait_ready(10)
        assert near.org_switch.age_s() < 10
        await one.namespace("a")
        token = await one.token("a:admin", org_admin=True, subject="ann@example.org")

        answer = await one.outside.SetModelCalls(
            identity_pb2.SetModelCallsRequest(enabled=False), metadata=bearer(token)
        )
        assert (answer.changed, answer.model_calls.enabled) == (True, False)
        assert answer.model_calls.updated_by == "ann@example.org"
        await until(lambda: "acme" in near.org_switch.off and "acme" in far.org_switch.off, within_s=REFRESH_S + 2)

        gate = ModelCallGate(
            InferencePolicy(), FollowedSwitch(far.org_switch, 60), DirectoryReads(GrpcDirectory(two.channel("memory")))
        )
        with bind(Call(attribution=Attribution("acme"))), pytest.raises(ModelCallsOff):
            await gate.require()
        with bind(Call(attribution=Attribution("globex"))):
            await gate.require()

        assert not (await switch(two, enabled=False)).changed
        shown = await two.outside.GetModelCalls(identity_pb2.GetModelCallsRequest(), metadata=bearer(token))
        assert shown.model_calls == answer.model_calls

        # A service that connects later is told in its snapshot.
        late = await stack.enter_async_context(IdentityWatch(two.channel("gateway")))
        assert await late.wait_ready(10)
        assert late.org_switch.off == {"acme"}

        assert (await switch(two, enabled=True)).changed
        await until(lambda: not near.org_switch.off and not late.org_switch.off, within_s=REFRESH_S + 2)


async def test_the_switch_outlives_a_restart(clickhouse: ClickHouse, tmp_path: Path) -> None:
    async with running_identity(clickhouse, tmp_path) as identity:
        await switch(identity, enabled=False, org="globex")
    async with (
        running_identity(clickhouse, tmp_path) as again,
        IdentityWatch(again.channel("memory")) as watch,
    ):
        assert await watch.wait_ready(10)
        assert watch.org_switch.off == {"globex"}


async def test_only_an_administrator_of_the_organisation_turns_or_sees_it(
    clickhouse: ClickHouse, tmp_path: Path
) -> None:
    async with running_identity(clickhouse, tmp_path) as identity:
        await identity.namespace("a")
        await identity.namespace("b", org="globex")
        writer = await identity.token("a:admin")
        other = await identity.token("b:admin", org="globex", org_admin=True)
        for token, org in ((writer, None), (other, "acme")):
            with pytest.raises(AuthInsufficient):
                await identity.outside.SetModelCalls(
                    identity_pb2.SetModelCallsRequest(org=org, enabled=False), metadata=bearer(token)
                )
            with pytest.raises(AuthInsufficient):
                await identity.outside.GetModelCalls(identity_pb2.GetModelCallsRequest(org=org), metadata=bearer(token))
        with pytest.raises(InvalidArgument):
            await identity.outside.SetModelCalls(identity_pb2.SetModelCallsRequest(), metadata=bearer(other))
        untouched = await identity.operator.GetModelCalls(identity_pb2.GetModelCallsRequest(org="acme"))
        assert (untouched.model_calls.enabled, untouched.model_calls.updated_at) == (True, "")
