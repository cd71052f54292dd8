"""What the tests of the llm service share."""

from collections.abc import AsyncIterator

import grpc.aio
import pytest
from support.grpc import Deployment
from support.llm_service import Rig
from support.providers import ProviderStandIn
from support.watching import telling_identity

from loom_common.clickhouse import ClickHouse
from loom_llm.wiring import open_service


@pytest.fixture
async def stand_in() -> AsyncIterator[ProviderStandIn]:
    async with ProviderStandIn().running() as server:
        yield server


@pytest.fixture
async def rig(deployment: Deployment, clickhouse: ClickHouse, stand_in: ProviderStandIn) -> AsyncIterator[Rig]:
    async with telling_identity(deployment) as identity:
        yield Rig(deployment, clickhouse, stand_in, identity)


@pytest.fixture
async def fake_server(rig: Rig) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to a service that the fake model answers."""
    async with (
        open_service(rig.settings(LOOM_LLM_PROVIDER="fake"), rig.clickhouse) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        yield channel
