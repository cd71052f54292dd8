"""Two organisations with canaries behind the boundary around analyses, on the engine of this pytest process."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from loom_common.clickhouse import ClickHouse, ClickHouseSettings
from loom_common.clickhouse.embedded import EmbeddedClickHouse
from loom_common.clickhouse.embedded_analyst import EmbeddedAnalyst
from loom_common.clickhouse.engine import EmbeddedEngine
from loom_common.clickhouse.errors import AnalystFailure
from loom_common.errors import LoomError
from loom_common.migrations import migrate
from loom_insights.domain.analysis import AnalysisAnswer, AnalysisLimits, AnalysisScope, AnswerForm, one_statement
from loom_insights.domain.boundary import Statement
from loom_insights.domain.results import FORMATS
from loom_insights.store.embedded_boundary import EmbeddedBoundary

# Analyses read this database and no other.
DATABASE: Final = "loom"
NOW: Final = datetime(2026, 11, 30, 12, tzinfo=UTC)

OWN: Final = AnalysisScope("acme", ("main",))
FOREIGN: Final = AnalysisScope("umbra", ("main",))

FOREIGN_WORD: Final = "canaryforeign"
"""Part of every name of the other organisation, and of the caller's own namespace that the call does not name."""
TEXT_WORD: Final = "canarytext"
"""Part of every text, whoever wrote it."""
GONE_WORD: Final = "canarygone"
"""Part of every name that was deleted, erased or replaced."""
MACHINE_WORDS: Final = ("root:x:0", "loom_admin", "SELECT * FROM (\n", "getSetting(", "/clickhouse/", "DB::Exception")

LIMITS: Final = AnalysisLimits(time_s=2.0, read_rows=2_000_000, memory_bytes=128 << 20, result_rows=1_000)


@dataclass
class Outcome:
    """What a caller sees of a statement: an answer, or an error."""

    sql: str
    answer: AnalysisAnswer | None
    error: LoomError | None

    @property
    def reason(self) -> str:
        """The error's reason; `ok` for an answer."""
        return "ok" if self.error is None else str(self.error.reason.value)

    @property
    def rows(self) -> list[list[Any]]:
        """The rows of an answer."""
        assert self.answer is not None, f"{self.sql!r}: {self.error}"
        return [list(row) for row in self.answer.rows]

    def shown(self) -> str:
        """Everything that reaches the caller, as text."""
        if self.error is not None:
            return f"{self.error} {json.dumps(dict(self.error.detail))} {self.error.fields}"
        assert self.answer is not None
        names = [column.name for column in self.answer.columns]
        return json.dumps([names, *map(list, self.answer.rows)], ensure_ascii=False) + self.answer.csv


@dataclass
class Analysts:
    """The boundary, and the analyst below it, which looks at nothing before it runs."""

    ch: ClickHouse
    engine: EmbeddedEngine
    boundary: EmbeddedBoundary
    analyst: EmbeddedAnalyst

    async def ask(self, sql: str, scope: AnalysisScope = OWN, form: AnswerForm = "rows") -> Outcome:
        """Runs a statement as `insights.query` does."""
        try:
            return Outcome(sql, await self.boundary.run(Statement(one_statement(sql), scope, form)), None)
        except LoomError as error:
            return Outcome(sql, None, error)

    async def unguarded(self, sql: str, scope: AnalysisScope = OWN) -> str:
        """Runs a statement that nobody looked at: what comes back is kept in scope by grants and filters alone."""
        with suppress(LoomError):
            try:
                data = await self.analyst.run(
                    sql, FORMATS["rows"], scope.org, scope.namespaces, timeout_s=LIMITS.time_s
                )
            except AnalystFailure as error:
                return f"refused {error.cause.name}"
            return data.decode("utf-8", "replace")
        return "refused"

    def forbidden(self, sql: str) -> list[str]:
        """Returns what no answer to a statement may hold: what it does not say itself."""
        machine = (*MACHINE_WORDS, self.engine.analyst_key.value.hex(), self.engine.path)
        words = (FOREIGN_WORD, TEXT_WORD, GONE_WORD, "umbra", *machine)
        return [word for word in words if word.lower() not in sql.lower()]

    def assert_clean(self, outcome: Outcome) -> None:
        """Fails where an answer or an error holds anything of another's, a text, a key or a path."""
        shown = outcome.shown().lower()
        found = [word for word in self.forbidden(outcome.sql) if word.lower() in shown]
        assert not found, f"{outcome.sql!r} showed {found}: {outcome.shown()[:500]}"


@asynccontextmanager
async def open_analysts(engine: EmbeddedEngine) -> AsyncIterator[Analysts]:
    """Makes the tables and the rows where they are not there yet, and opens the boundary over them."""
    ch = EmbeddedClickHouse(engine, DATABASE, ClickHouseSettings(pool_size=2))
    await ch.start()
    try:
        await migrate(ch, "memory", "loom_memory")
        await migrate(ch, "insights", "loom_insights")
        if not (await ch.query("SELECT count() FROM memory")).scalar():
            await _seed(ch)
        guarded, bare = ch.analyst(2), ch.analyst(1)
        assert guarded is not None
        assert bare is not None
        boundary = EmbeddedBoundary(guarded, LIMITS)
        EmbeddedBoundary(bare, LIMITS)  # gives it the settings of a statement
        try:
            yield Analysts(ch, engine, boundary, bare)
        finally:
            await asyncio.gather(boundary.close(), bare.close())
    finally:
        await ch.close()


def drop(engine: EmbeddedEngine) -> None:
    """Removes the database, so that the next module finds none."""
    handle = engine.open_handle()
    handle.execute(f"DROP DATABASE IF EXISTS {DATABASE} SYNC")
    handle.close()


async def _seed(ch: ClickHouse) -> None:
    places = [("acme", "main", "own"), ("acme", "legal", FOREIGN_WORD), ("umbra", "main", FOREIGN_WORD)]
    for org, namespace, word in places:
        for number in range(4):
            await _memory(ch, org, namespace, f"{word}-{number}", 1, kind="fact" if number else "decision")
        await _event(ch, org, namespace, f"{word}-request")
        await _exposure(ch, org, namespace, f"{word}-0")
    # Deleted (hidden by its newest row at once, by a tombstone on every version soon after), erased, and replaced.
    await _memory(ch, "acme", "main", f"{GONE_WORD}-deleted", 1, tables=["memory"])
    await _memory(ch, "acme", "main", f"{GONE_WORD}-deleted", 2, gone=True)
    for version in (1, 2):
        await _memory(ch, "acme", "main", f"{GONE_WORD}-erased", version, gone=True)
    await _memory(ch, "acme", "main", "own-replaced", 1, kind=f"{GONE_WORD}-kind", tables=["memory"])
    await _memory(ch, "acme", "main", "own-replaced", 2, kind="fact")


async def _memory(
    ch: ClickHouse,
    org: str,
    namespace: str,
    key: str,
    version: int,
    *,
    kind: str = "fact",
    gone: bool = False,
    tables: Sequence[str] = ("memory", "memory_versions"),
) -> None:
    values = {
        "org": org,
        "namespace": namespace,
        "key": key,
        "value": f"{TEXT_WORD} {org} {key}",
        "kind": kind,
        "version": version,
        "at": NOW - timedelta(days=1),
        "gone": gone,
    }
    for table in tables:
        await ch.command(
            f"""INSERT INTO {table} (org, namespace, memory_key, value, kind, tags, agent, actor, revision, version,
                created_at, updated_at, tombstoned_at)
            SELECT {{org:String}}, {{namespace:String}}, {{key:String}}, {{value:String}}, {{kind:String}},
                [{{value:String}}], 'bot', 'agent:bot', {{version:UInt32}}, {{version:UInt64}},
                {{at:DateTime64(3, 'UTC')}}, {{at:DateTime64(3, 'UTC')}},
                if({{gone:Bool}}, {{at:DateTime64(3, 'UTC')}}, NULL)""",
            values,
        )


async def _event(ch: ClickHouse, org: str, namespace: str, request_id: str) -> None:
    await ch.command(
        """INSERT INTO agent_events (org, namespace, occurred_at, request_id, op, subject, status, args)
        SELECT {org:String}, {namespace:String}, {at:DateTime64(3, 'UTC')}, {request:String}, 'memory.search',
            {request:String}, 'ok', map('query', {text:String})""",
        {"org": org, "namespace": namespace, "at": NOW, "request": request_id, "text": f"{TEXT_WORD} of a query"},
    )


async def _exposure(ch: ClickHouse, org: str, namespace: str, key: str) -> None:
    await ch.command(
        """INSERT INTO memory_exposures (org, namespace, memory_key, shown_at, op, request_id)
        SELECT {org:String}, {namespace:String}, {key:String}, {at:DateTime64(3, 'UTC')}, 'memory.search',
            {key:String}""",
        {"org": org, "namespace": namespace, "key": key, "at": NOW},
    )
