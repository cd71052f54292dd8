"""How long the ledger's rows live."""

from datetime import UTC, datetime, timedelta

import pytest

from loom_common.clickhouse import ClickHouse
from loom_common.migrations import migrate
from loom_insights.domain.ledger import LedgerEntry
from loom_insights.store.agent_events import AgentEventRepository


@pytest.mark.parametrize(("days_ago", "kept"), [(0, 1), (399, 1), (440, 0)])
async def test_a_row_goes_after_400_days(clickhouse: ClickHouse, days_ago: int, kept: int) -> None:
    await migrate(clickhouse, "insights", "loom_insights")
    at = datetime.now(UTC) - timedelta(days=days_ago)
    entry = LedgerEntry("r", "memory", at, "acme", "default", "memory.get", "grpc", "", "", "", "", "ok", False, 1.0)
    await AgentEventRepository(clickhouse).add([entry])
    await clickhouse.command("OPTIMIZE TABLE agent_events FINAL")
    ((count,),) = await clickhouse.query("SELECT count() FROM agent_events")
    assert count == kept
