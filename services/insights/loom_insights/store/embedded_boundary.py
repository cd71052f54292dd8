"""The boundary on the embedded engine: roles, row filters, and a look at the parse before anything runs."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from loom_common.analysis import allowlist
from loom_common.clickhouse.analyst import Analyst
from loom_common.clickhouse.errors import AnalystFailure
from loom_common.erasure import quote_identifier
from loom_common.errors import DeadlineExceeded, LoomError
from loom_insights.domain.analysis import RESERVED, AnalysisAnswer, AnalysisLimits, wrapped
from loom_insights.domain.boundary import BoundaryBroken, BoundaryKind, BoundarySilent, Statement
from loom_insights.domain.failures import failure, limit_reached
from loom_insights.domain.guard import check_form, check_tree
from loom_insights.domain.results import FORMAT_SETTINGS, FORMATS, PLAIN_COLUMNS, read_answer

# Text of rows as the client gets it is somewhat larger than the engine's own count of its bytes.
_TEXT_TIMES: Final = 2
# Reads that a boundary that holds refuses, each with what it would show.
_REFUSED: Final = {
    "SELECT value FROM memory LIMIT 1": "a column outside the allowlist can be read",
    "SELECT count() FROM memory_embeddings": "a table outside the allowlist can be read",
    "SELECT count() FROM system.users": "the engine's users can be read",
    "SELECT count() FROM file('/dev/null', 'LineAsString')": "files can be read",
}


class EmbeddedBoundary:
    """Runs statements as the analyst of the embedded engine."""

    def __init__(self, analyst: Analyst, limits: AnalysisLimits) -> None:
        self._analyst = analyst
        self._limits = limits
        analyst.configure(statement_settings(limits))

    @property
    def kind(self) -> BoundaryKind:
        """See `AnalysisBoundary.kind`."""
        return "embedded"

    async def run(self, statement: Statement) -> AnalysisAnswer:
        """See `AnalysisBoundary.run`."""
        try:
            runnable = await self._looked_at(statement.sql)
            began = time.perf_counter()
            data = await self._analyst.run(
                runnable,
                FORMATS[statement.form],
                statement.scope.org,
                statement.scope.namespaces,
                timeout_s=self._limits.time_s,
            )
        except AnalystFailure as error:
            raise failure(error.cause.name, error.text, statement.sql, self._limits) from None
        except DeadlineExceeded:
            raise failure("TIMEOUT_EXCEEDED", "", statement.sql, self._limits) from None
        elapsed_ms = (time.perf_counter() - began) * 1000.0
        if len(data) > _TEXT_TIMES * self._limits.result_bytes:
            raise limit_reached("result_rows", "Name fewer columns, or take fewer rows with LIMIT.", self._limits)
        return read_answer(statement.form, data, elapsed_ms)

    async def probe(self) -> None:
        """See `AnalysisBoundary.probe`."""
        try:
            await self._probe_roles()
            for name in allowlist():
                with _absent_is_fine():
                    await self._probe_empty(name)
            for statement, shown in _REFUSED.items():
                with _absent_is_fine():
                    await self._probe_refused(statement, shown)
        except AnalystFailure as error:
            # Codes and names are the engine's own words for causes, and hold nothing of a row or a key.
            raise BoundaryBroken(f"a check of it failed with {error.cause}") from None
        except LoomError as error:
            raise BoundarySilent(type(error).__name__) from None

    async def close(self) -> None:
        """See `AnalysisBoundary.close`."""
        await self._analyst.close()

    async def _looked_at(self, sql: str) -> str:
        """Returns what is run for a statement: what the engine itself wrote out, every part of it on a list."""
        # Alone first: a statement that leaves its parenthesis is no statement alone.
        formatted = (await self._analyst.formatted(sql)).strip()
        check_form(formatted)
        whole = await self._analyst.formatted(wrapped(formatted))
        check_tree(await self._analyst.syntax_tree(whole), whole, self._analyst.database)
        return whole

    async def _probe_roles(self) -> None:
        roles = await self._analyst.run_unsigned("SELECT arrayStringConcat(currentRoles(), ',')", "probe")
        if roles.decode().strip() != "loom_analyst":
            raise BoundaryBroken("statements do not run as the analyst")

    async def _probe_empty(self, table: str) -> None:
        target = quote_identifier(table)
        counted = f"SELECT count() FROM {target}"  # noqa: S608  (a quoted name of the allowlist)
        if (await self._analyst.run_unsigned(counted, "probe")).strip() != b"0":
            raise BoundaryBroken(f"{table} shows rows to a statement without a scope")
        signed = await self._analyst.run(counted, "TabSeparated", RESERVED, (RESERVED,), timeout_s=self._limits.time_s)
        if signed.strip() != b"0":
            raise BoundaryBroken(f"{table} shows rows of no organisation")

    async def _probe_refused(self, statement: str, shown: str) -> None:
        try:
            await self._analyst.run_unsigned(statement, "probe")
        except AnalystFailure as error:
            if error.cause.name == "ACCESS_DENIED":
                return
            raise
        raise BoundaryBroken(shown)


@contextmanager
def _absent_is_fine() -> Iterator[None]:
    """Passes over a table that its owner has not made yet: its grants and its filter are there before it is."""
    try:
        yield
    except AnalystFailure as error:
        if error.cause.name != "UNKNOWN_TABLE":
            raise


def statement_settings(limits: AnalysisLimits) -> dict[str, str | int | float]:
    """Returns what every statement runs under on the embedded engine."""
    return {
        **FORMAT_SETTINGS,
        "final": 1,
        "apply_row_policy_after_final": 1,
        "max_execution_time": limits.time_s,
        "timeout_overflow_mode": "throw",
        "max_rows_to_read": limits.read_rows,
        "read_overflow_mode": "throw",
        "max_memory_usage": limits.memory_bytes,
        "max_result_rows": limits.result_rows,
        "max_result_bytes": limits.result_bytes,
        "result_overflow_mode": "throw",
        "max_threads": limits.threads,
        "max_subquery_depth": 50,
        "use_query_cache": 0,
        "use_query_condition_cache": 0,
        "send_logs_level": "none",
        "allow_ddl": 0,
        "allow_introspection_functions": 0,
        "short_circuit_function_evaluation": "enable",
        **PLAIN_COLUMNS,
        # Last: after it nothing but settings can be changed.
        "readonly": 2,
    }
