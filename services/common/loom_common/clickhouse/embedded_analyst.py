"""Runs statements of callers on the embedded engine, as the role that sees one signed scope.

Its handles are its own: a handle that has become the analyst never runs anything else, and one whose statement failed
or was cancelled is closed.
"""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from loom_common.call import current
from loom_common.clickhouse.analyst_access import ANALYST_ROLE, AnalystKey, SignedScope
from loom_common.clickhouse.engine import EmbeddedEngine, EngineHandle
from loom_common.clickhouse.errors import DRIVER_ERRORS, AnalystFailure, StatementFailed, engine_failure
from loom_common.clickhouse.pool import GRACE_S, HandlePool
from loom_common.clickhouse.tagging import next_log_comment

# Source: chosen. The signature holds for a statement's time and what may pass before the engine looks at it.
_EXPIRY_SLACK_S: Final = 30.0
_PARSE_TIMEOUT_S: Final = 5.0
_PARSE_SETTINGS: Final[Mapping[str, str | int]] = {
    "max_execution_time": 5,
    "max_memory_usage": 256 << 20,
    # Source: chosen. The engine's own depth; deeper statements are refused by its parser instead of by its stack.
    "max_parser_depth": 300,
    "max_query_size": 1 << 20,
}


_TOO_MANY: Final = StatementFailed(202, "TOO_MANY_SIMULTANEOUS_QUERIES")
# One in so many places may be taken by statements of one organisation that nobody waits for any more. Source: chosen.
_LEFT_SHARE: Final = 4
_LEFT_LEAST: Final = 2

_Work: TypeAlias = Callable[[EngineHandle], bytes]


@dataclass(slots=True)
class _Running:
    """One statement in the engine, and whether its caller has left."""

    begun: bool = False
    ended: bool = False
    left: bool = False


class EmbeddedAnalyst:
    """The analyst of one database of an embedded engine."""

    def __init__(self, engine: EmbeddedEngine, database: str, key: AnalystKey, *, places: int) -> None:
        """Takes what it runs on; `places` is how many statements run at once."""
        self._engine = engine
        self.database = database
        self._key = key
        self._killer: EngineHandle | None = None
        self._left: Counter[str] = Counter()
        self._most_left = max(_LEFT_LEAST, places // _LEFT_SHARE)
        self._settings: dict[str, object] = {}
        self._analysts: HandlePool[EngineHandle] = HandlePool(self._open_analyst, places, self._kill)
        self._parsers: HandlePool[EngineHandle] = HandlePool(engine.open_handle, 2, self._kill)

    def configure(self, settings: Mapping[str, str | int | float]) -> None:
        """Sets what every statement runs under; before the first one."""
        self._settings = dict(settings)

    async def formatted(self, statement: str) -> str:
        """Returns a statement as the engine writes it, on one line and without comments; nothing is executed.

        Raises:
            AnalystFailure: It is not exactly one statement.
        """
        comment = next_log_comment()
        text = await self._run(
            self._parsers,
            lambda handle: handle.execute(
                "SELECT formatQuerySingleLine({statement:String})",
                "RawBLOB",
                parameters={"statement": _escaped(statement)},
                settings={**_PARSE_SETTINGS, "log_comment": comment},
            ),
            comment,
            _PARSE_TIMEOUT_S,
        )
        return text.decode("utf-8", "replace")

    async def syntax_tree(self, formatted: str) -> str:
        """Returns the engine's parse of a statement that it formatted itself, one node a line; nothing is executed.

        Raises:
            AnalystFailure: It does not parse.
        """
        comment = next_log_comment()
        text = await self._run(
            self._parsers,
            lambda handle: handle.execute(
                f"EXPLAIN AST {formatted}", "TSVRaw", settings={**_PARSE_SETTINGS, "log_comment": comment}
            ),
            comment,
            _PARSE_TIMEOUT_S,
        )
        return text.decode("utf-8", "replace")

    async def run(
        self, statement: str, output_format: str, org: str, namespaces: Sequence[str], *, timeout_s: float
    ) -> bytes:
        """Returns the rows of a statement that was looked at before, in one of the engine's formats.

        Raises:
            AnalystFailure: The engine refused it, or it hit a limit; or earlier statements of the organisation, whose
                callers have left, still run.
            DeadlineExceeded: It did not end in time.
        """
        if self._left[org] >= self._most_left:
            raise AnalystFailure(_TOO_MANY, "")
        call = current()
        tag = f"{call.statement_tag} {secrets.token_hex(16)}"
        expires = int(time.time() + timeout_s + _EXPIRY_SLACK_S)
        comment = self._key.sign(SignedScope(org, tuple(namespaces), expires, tag))
        settings = {**self._settings, "log_comment": comment}
        running = _Running()
        loop = asyncio.get_running_loop()

        def work(handle: EngineHandle) -> bytes:
            running.begun = True
            try:
                return handle.execute(statement, output_format, settings=settings)
            finally:
                loop.call_soon_threadsafe(self._end, org, running)

        try:
            return await self._run(self._analysts, work, comment, timeout_s)
        finally:
            # The engine is deaf to a kill inside one call of a function: the place is taken until that ends.
            if running.begun and not running.ended:
                running.left = True
                self._left[org] += 1

    async def run_unsigned(self, statement: str, log_comment: str) -> bytes:
        """Returns the rows of a statement under a comment that is not signed; for the probe, which expects none.

        Raises:
            AnalystFailure: The engine refused it.
        """
        settings = {**self._settings, "log_comment": log_comment}
        return await self._run(
            self._analysts,
            lambda handle: handle.execute(statement, "TabSeparated", settings=settings),
            log_comment,
            _PARSE_TIMEOUT_S,
        )

    async def close(self) -> None:
        """Waits for running statements and closes every handle. Safe to call twice."""
        await asyncio.gather(self._analysts.close(), self._parsers.close())
        if self._killer is not None:
            self._killer.close()
            self._killer = None

    async def _run(self, pool: HandlePool[EngineHandle], function: _Work, log_comment: str, timeout_s: float) -> bytes:
        try:
            return await pool.run(function, log_comment, timeout_s + GRACE_S)
        except DRIVER_ERRORS as error:
            raise AnalystFailure(engine_failure(error), str(error)) from None

    def _end(self, org: str, running: _Running) -> None:
        running.ended = True
        if running.left:
            self._left[org] -= 1
            if not self._left[org]:
                del self._left[org]

    def _open_analyst(self) -> EngineHandle:
        handle = self._engine.open_handle()
        # Before the role: it may see no databases.
        handle.execute("SELECT 1", database=self.database, settings=self._settings)
        handle.execute(f"SET ROLE {ANALYST_ROLE}", database=self.database, settings=self._settings)
        return handle

    def _kill(self, log_comment: str) -> None:
        # Only the thread for kills comes here, one after the other.
        if self._killer is None:
            self._killer = self._engine.open_handle()
        self._killer.kill(log_comment)


def _escaped(text: str) -> str:
    """Returns a text as the engine reads it as the value of a parameter."""
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\0", "\\0")
