"""What OAuth gives out once is used once, whoever asks, and is remembered until it could not be used anyway."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from loom_common.clickhouse import ClickHouse
from loom_common.clock import SystemClock
from loom_common.conditional_writes import Claims
from loom_common.migrations import migrate
from loom_gateway.oauth.spent import StoredSpent
from loom_gateway.oauth.store import Use, UseRepository


def spent(clickhouse: ClickHouse) -> StoredSpent:
    return StoredSpent(Claims(clickhouse, "gateway"), UseRepository(clickhouse), SystemClock())


async def test_of_many_uses_on_several_replicas_one_is_the_first(clickhouse: ClickHouse) -> None:
    await migrate(clickhouse, "gateway", "loom_gateway")
    replicas = [spent(clickhouse) for _ in range(3)]
    until_s = SystemClock().now().timestamp() + 60
    uses = [replica.spend("code", org="acme", until_s=until_s) for replica in replicas * 2]
    assert sorted(await asyncio.gather(*uses)) == [False] * 5 + [True]
    assert await replicas[0].spend("other", org="acme", until_s=until_s)
    assert not await replicas[1].spend("other", org="acme", until_s=until_s)


@pytest.mark.parametrize(("ended_days_ago", "kept"), [(-1, True), (0, True), (3, False)])
async def test_a_use_is_forgotten_once_it_could_not_be_repeated_anyway(
    clickhouse: ClickHouse, ended_days_ago: float, kept: bool
) -> None:
    await migrate(clickhouse, "gateway", "loom_gateway")
    uses = UseRepository(clickhouse)
    ended = datetime.now(UTC) - timedelta(days=ended_days_ago)
    await uses.add(Use("acme", "code", ended, ended))
    await clickhouse.command("OPTIMIZE TABLE oauth_uses FINAL")
    assert await uses.is_known("code") is kept
