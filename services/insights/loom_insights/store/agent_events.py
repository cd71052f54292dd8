"""The ledger's table, `agent_events`."""

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, Table
from loom_insights.domain.ledger import LedgerEntry
from loom_insights.domain.usage import GroupBy, Span, UsageGroup

AGENT_EVENTS: Final = Table.of(
    "agent_events",
    request_id="String",
    recorder="LowCardinality(String)",
    occurred_at="DateTime64(3, 'UTC')",
    org="LowCardinality(String)",
    namespace="LowCardinality(String)",
    op="LowCardinality(String)",
    transport="LowCardinality(String)",
    subject="String",
    consumer="LowCardinality(String)",
    run_id="String",
    user_id="String",
    status="LowCardinality(String)",
    refused="Bool",
    latency_ms="Float64",
    out_hits="Nullable(Int32)",
    found="Nullable(Bool)",
    args="Map(LowCardinality(String), String)",
    out_sql_digest="String",
    embedding_tokens="UInt32",
    input_tokens="UInt32",
    output_tokens="UInt32",
    cached_tokens="UInt32",
    llm_calls="UInt32",
    upstream_cost_usd="Float64",
    out_llm_cache_saved_usd="Float64",
    model="LowCardinality(String)",
)

# Most groups a summary returns. Source: chosen; above it a table is no summary.
MAX_GROUPS: Final = 1000

# One whole statement per group: an identifier cannot be bound as a parameter, and none is ever formatted in.
_SUMMARY_TAIL: Final = """ AS grouped, count() AS calls, countIf(status != 'ok'),
    quantileTDigest(0.5)(latency_ms), quantileTDigest(0.95)(latency_ms),
    sum(embedding_tokens), sum(input_tokens), sum(output_tokens), sum(llm_calls), sum(upstream_cost_usd)
FROM agent_events
WHERE org = {org:String} AND namespace = {namespace:String}
    AND occurred_at >= {since:DateTime64(3, 'UTC')} AND occurred_at < {until:DateTime64(3, 'UTC')}
GROUP BY grouped ORDER BY calls DESC, grouped LIMIT {limit:UInt32}"""
_SUMMARIES: Final[dict[GroupBy, str]] = {
    "op": "SELECT toString(op)" + _SUMMARY_TAIL,
    "subject": "SELECT subject" + _SUMMARY_TAIL,
    "consumer": "SELECT toString(consumer)" + _SUMMARY_TAIL,
    "model": "SELECT toString(model)" + _SUMMARY_TAIL,
    "status": "SELECT toString(status)" + _SUMMARY_TAIL,
    "day": "SELECT toString(toDate(occurred_at, 'UTC'))" + _SUMMARY_TAIL,
}


_SPENT: Final = """
SELECT sum(upstream_cost_usd)
FROM agent_events
WHERE org = {org:String} AND namespace = {namespace:String} AND occurred_at >= {since:DateTime64(3, 'UTC')}
    AND ({op:String} = '' OR op = {op:String})"""


class AgentEventRepository:
    """Owns the `agent_events` table; no other class names it."""

    def __init__(self, client: ClickHouse) -> None:
        self._client = client

    async def add(self, entries: Sequence[LedgerEntry]) -> None:
        """Stores entries; one that is added twice is stored twice."""
        names = [column.name for column in AGENT_EVENTS.columns]
        await self._client.insert(AGENT_EVENTS, [[_value(entry, name) for name in names] for entry in entries])

    async def summary(self, scope: Scope, span: Span, group_by: GroupBy) -> list[UsageGroup]:
        """Returns one row per group, most calls first, equal ones by name; at most `MAX_GROUPS`."""
        rows = await self._client.query(
            _SUMMARIES[group_by],
            {
                "org": scope.org,
                "namespace": scope.namespace,
                "since": span.since,
                "until": span.until,
                "limit": MAX_GROUPS,
            },
        )
        return [UsageGroup(*row) for row in rows]

    async def spent_usd(self, scope: Scope, since: datetime, op: str) -> float:
        """Returns what a namespace's calls cost from a time on; of one operation, or of all where it is empty."""
        rows = await self._client.query(
            _SPENT, {"org": scope.org, "namespace": scope.namespace, "since": since, "op": op}
        )
        return float(rows.rows[0][0])


def _value(entry: LedgerEntry, name: str) -> object:
    value = getattr(entry, name)
    return dict(value) if name == "args" else value


assert {column.name for column in AGENT_EVENTS.columns} == {field.name for field in fields(LedgerEntry)}
