"""What a namespace spent today, read from the ledger as the budget reads it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse
from loom_common.clock import FakeClock
from loom_common.migrations import migrate, migration_state
from loom_insights.app.usage import UsageAccounts
from loom_insights.domain.ledger import LedgerEntry
from loom_insights.store.agent_events import AgentEventRepository

NOW = datetime(2026, 11, 30, 0, 30, tzinfo=UTC)
TEAM = Scope("acme", "team")


def spent(usd: float, op: str = "memory.ask", scope: Scope = TEAM, hours_ago: float = 0.1) -> LedgerEntry:
    at = NOW - timedelta(hours=hours_ago)
    row = LedgerEntry("r", "llm", at, scope.org, scope.namespace, op, "grpc", "", "", "", "", "ok", False, 1.0)
    return replace(row, upstream_cost_usd=usd)


async def test_the_spend_of_today_is_the_namespaces_own_since_midnight_utc(clickhouse: ClickHouse) -> None:
    packages = {"common": "loom_common", "insights": "loom_insights"}
    fresh = await migration_state(clickhouse, "insights", "loom_insights")
    assert fresh.pending
    await migrate(clickhouse, "insights", "loom_insights")
    for service, package in packages.items():
        state = await migration_state(clickhouse, service, package)
        assert (state.pending, state.foreign) == ((), ())
    accounts = UsageAccounts(AgentEventRepository(clickhouse), FakeClock(NOW))
    assert await accounts.spent_today_usd(TEAM, "") == 0.0
    other = Scope("acme", "other")
    rows = [spent(0.25), spent(0.5, "assistant.ask"), spent(4, scope=other), spent(8, hours_ago=1)]
    await accounts.record(rows)
    assert await accounts.spent_today_usd(TEAM, "") == 0.75
    assert await accounts.spent_today_usd(TEAM, "assistant.ask") == 0.5
    assert await accounts.spent_today_usd(Scope("other", "team"), "") == 0.0
