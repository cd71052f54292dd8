"""What the ledger tells of a namespace: who called, what failed, what searches found, what it cost."""

from collections.abc import Sequence
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse
from loom_insights.domain.costs import MOST_ROWS, Cost, CostBy, CostReport
from loom_insights.domain.namespace import Caller, Failure, Searches, Spent
from loom_insights.domain.usage import Span

SEARCHES: Final = ("memory.search", "search.query", "knowledge.search", "conversation.search", "memory.ask")
"""Operations whose hits are found by a question."""

_WHERE: Final = """
FROM agent_events
WHERE org = {org:String} AND namespace = {namespace:String}
    AND occurred_at >= {since:DateTime64(3, 'UTC')} AND occurred_at < {until:DateTime64(3, 'UTC')}"""
_SPENT: Final = "SELECT count(), countIf(status != 'ok'), sum(upstream_cost_usd)" + _WHERE
_CALLERS: Final = (
    "SELECT subject, count() AS calls, countIf(status != 'ok'), sum(upstream_cost_usd)"
    + _WHERE
    + " GROUP BY subject ORDER BY calls DESC, subject LIMIT {limit:UInt32}"
)
_FAILURES: Final = (
    "SELECT toString(op), toString(status), count() AS times"
    + _WHERE
    + " AND status != 'ok' GROUP BY op, status ORDER BY times DESC, op, status LIMIT {limit:UInt32}"
)
_SEARCHES: Final = (
    "SELECT count(), countIf(out_hits = 0)"
    + _WHERE
    + " AND status = 'ok' AND out_hits IS NOT NULL AND has({ops:Array(String)}, toString(op))"
)
_SUMS: Final = """count(), sum(embedding_tokens), sum(input_tokens), sum(cached_tokens), sum(output_tokens),
    sum(llm_calls), sum(upstream_cost_usd) AS cost, sum(out_llm_cache_saved_usd)"""
_OF_MANY: Final = """
FROM agent_events
WHERE org = {org:String} AND namespace IN {namespaces:Array(String)}
    AND occurred_at >= {since:DateTime64(3, 'UTC')} AND occurred_at < {until:DateTime64(3, 'UTC')}"""
# What is not grouped by is one empty name, so that one statement serves every choice.
_COSTS: Final = (
    """SELECT if(has({by:Array(String)}, 'day'), toString(toDate(occurred_at, 'UTC')), '') AS day,
    if(has({by:Array(String)}, 'op'), toString(op), '') AS of_op,
    if(has({by:Array(String)}, 'model'), toString(model), '') AS of_model,
    if(has({by:Array(String)}, 'namespace'), toString(namespace), '') AS of_namespace, """
    + _SUMS
    + _OF_MANY
    + """ GROUP BY day, of_op, of_model, of_namespace
ORDER BY cost DESC, day, of_op, of_model, of_namespace LIMIT {limit:UInt32}"""
)
_TOTAL: Final = "SELECT '', '', '', '', " + _SUMS + _OF_MANY


class LedgerActivity:
    """Reads the ledger of namespaces; writes nothing."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch

    async def spent(self, scope: Scope, span: Span) -> Spent:
        """Returns what a span of time saw and cost."""
        return Spent(*(await self._ch.query(_SPENT, _bound(scope, span))).rows[0])

    async def callers(self, scope: Scope, span: Span, limit: int) -> list[Caller]:
        """Returns who called, most calls first, equal ones by name."""
        return [Caller(*row) for row in await self._ch.query(_CALLERS, {**_bound(scope, span), "limit": limit})]

    async def failures(self, scope: Scope, span: Span, limit: int) -> list[Failure]:
        """Returns what failed, most frequent first, equal ones by name."""
        return [Failure(*row) for row in await self._ch.query(_FAILURES, {**_bound(scope, span), "limit": limit})]

    async def searches(self, scope: Scope, span: Span) -> Searches:
        """Returns how many searches ended well, and how many of them found nothing."""
        rows = await self._ch.query(_SEARCHES, {**_bound(scope, span), "ops": list(SEARCHES)})
        return Searches(*rows.rows[0])

    async def costs(self, org: str, namespaces: Sequence[str], span: Span, by: Sequence[CostBy]) -> CostReport:
        """Returns what namespaces spent, the dearest group first."""
        bound = {"org": org, "namespaces": list(namespaces), "since": span.since, "until": span.until}
        rows = await self._ch.query(_COSTS, {**bound, "by": list(by), "limit": MOST_ROWS + 1})
        total = await self._ch.query(_TOTAL, bound)
        costs = [Cost(*row) for row in rows]
        return CostReport(costs[:MOST_ROWS], Cost(*total.rows[0]), truncated=len(costs) > MOST_ROWS)


def _bound(scope: Scope, span: Span) -> dict[str, object]:
    return {"org": scope.org, "namespace": scope.namespace, "since": span.since, "until": span.until}
