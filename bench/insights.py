"""What the boundary around callers' SQL adds to a statement, on the engine inside Loom.

The same statement runs behind the boundary for one of a thousand organisations, below the look at its parse, and as an
admin who filters by organisation himself, in one run over the same rows.
"""

# Imported first: it loads the engine, on the main thread.
from loom_common.clickhouse.engine import EmbeddedEngine  # isort: skip

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

from bench import results
from loom_common.clickhouse import ClickHouse, ClickHouseSettings
from loom_common.clickhouse.embedded import EmbeddedClickHouse
from loom_common.clickhouse.embedded_analyst import EmbeddedAnalyst
from loom_common.clickhouse.engine_config import EngineLimits
from loom_common.clickhouse.errors import AnalystFailure
from loom_common.migrations import migrate
from loom_insights.domain.analysis import AnalysisLimits, AnalysisScope, wrapped
from loom_insights.domain.boundary import Statement
from loom_insights.store.embedded_boundary import EmbeddedBoundary, statement_settings

SIZES: Final = (1_000_000, 5_000_000)
BRIEF_SIZES: Final = (20_000,)
ORGS: Final = 1_000
_RUNS: Final = 30
_SCOPE: Final = AnalysisScope("org7", ("main",))
_LOAD: Final = """INSERT INTO memory
    (org, namespace, memory_key, kind, agent, revision, version, created_at, updated_at)
SELECT concat('org', toString(number % {orgs:UInt32})), 'main', concat('key-', toString(number)),
    ['fact', 'decision', 'note', 'preference'][number % 4 + 1], concat('agent-', toString(number % 17)), 1, 1,
    now64(3), now64(3)
FROM numbers({count:UInt64})"""
STATEMENTS: Final = {
    "count": "SELECT count() FROM memory",
    "group by": "SELECT kind, agent, count() AS n FROM memory GROUP BY kind, agent ORDER BY n DESC, kind, agent",
}
_OWN_FILTER: Final = {
    "count": "SELECT count() FROM memory FINAL WHERE org = {org:String} AND tombstoned_at IS NULL",
    "group by": """SELECT kind, agent, count() AS n FROM memory FINAL
        WHERE org = {org:String} AND tombstoned_at IS NULL GROUP BY kind, agent ORDER BY n DESC, kind, agent""",
}


def run(*, brief: bool = False) -> None:
    """Measures each size and saves the figures; a brief run only prints them."""
    sizes = BRIEF_SIZES if brief else SIZES
    measured = [asyncio.run(_measured(size, 3 if brief else _RUNS)) for size in sizes]
    if brief:
        print(measured)
        return
    results.save("insights", {"orgs": ORGS, "runs": _RUNS, "sizes": measured})


async def _measured(size: int, runs: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        limits = EngineLimits(memory_bytes=4 << 30, cache_bytes=128 << 20)
        engine = EmbeddedEngine.open(Path(folder), limits, min_free_bytes=0)
        ch = EmbeddedClickHouse(engine, "loom", ClickHouseSettings(pool_size=2))
        try:
            await ch.start()
            await migrate(ch, "memory", "loom_memory")
            await migrate(ch, "insights", "loom_insights")
            await ch.command(_LOAD, {"orgs": ORGS, "count": size}, timeout_s=600)
            await ch.command("OPTIMIZE TABLE memory FINAL", timeout_s=600)
            return {"rows": size, "statements": await _statements(ch, runs)}
        finally:
            await ch.close()
            engine.close()


async def _statements(ch: EmbeddedClickHouse, runs: int) -> dict[str, Any]:
    guarded, bare = ch.analyst(2), ch.analyst(1)
    assert guarded is not None
    assert bare is not None
    boundary = EmbeddedBoundary(guarded, AnalysisLimits())
    bare.configure(statement_settings(AnalysisLimits()))
    try:
        return {name: await _statement(ch, boundary, bare, name, runs) for name in STATEMENTS}
    finally:
        await asyncio.gather(boundary.close(), bare.close())


async def _statement(
    ch: ClickHouse, boundary: EmbeddedBoundary, bare: EmbeddedAnalyst, name: str, runs: int
) -> dict[str, Any]:
    sql = STATEMENTS[name]

    async def behind() -> object:
        return await boundary.run(Statement(sql, _SCOPE))

    async def below() -> object:
        return await bare.run(wrapped(sql), "TabSeparated", _SCOPE.org, _SCOPE.namespaces, timeout_s=60)

    async def admin() -> object:
        return await ch.query(_OWN_FILTER[name], {"org": _SCOPE.org}, timeout_s=60)

    figures: dict[str, Any] = {}
    for way, call in (("boundary", behind), ("filter", below), ("admin", admin)):
        figures[f"{way}_p50_ms"] = await _p50_ms(call, runs)
    figures["rows_read_at_most"] = await _rows_read(bare, sql)
    return figures


async def _p50_ms(call: Callable[[], Awaitable[object]], runs: int) -> float:
    await call()
    taken: list[float] = []
    for _ in range(runs):
        began = time.perf_counter()
        await call()
        taken.append((time.perf_counter() - began) * 1000)
    return round(statistics.median(taken), 2)


async def _rows_read(bare: EmbeddedAnalyst, sql: str) -> int:
    """Returns the first of some limits under which the engine lets the scoped statement read its rows."""
    bounds: Sequence[int] = [1 << power for power in range(10, 24)]
    for bound in bounds:
        bare.configure(statement_settings(AnalysisLimits(read_rows=bound)))
        try:
            await bare.run(wrapped(sql), "TabSeparated", _SCOPE.org, _SCOPE.namespaces, timeout_s=60)
        except AnalystFailure:
            continue
        return bound
    return bounds[-1]
