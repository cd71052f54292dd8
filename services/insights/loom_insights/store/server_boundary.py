"""The boundary on a ClickHouse server: a user of its own, column grants, and row policies that check a signed scope."""

import time
import uuid
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final

from loom_common.analysis import AnalysisTable
from loom_common.call import current
from loom_common.clickhouse.errors import AnalystFailure
from loom_common.erasure import quote_identifier
from loom_common.errors import AnalysisUnavailable, LoomError, Overloaded
from loom_insights.domain.analysis import RESERVED, AnalysisAnswer, AnalysisLimits, wrapped
from loom_insights.domain.boundary import BoundaryBroken, BoundaryKind, BoundarySilent, Statement
from loom_insights.domain.failures import failure
from loom_insights.domain.results import FORMAT_SETTINGS, FORMATS, PLAIN_COLUMNS, read_answer
from loom_insights.domain.server_entities import CANARY, VERSION, ServerSecrets, scope_settings
from loom_insights.store.analysis_secrets import SecretsLost
from loom_insights.store.server_analyst import ATTEMPTS, GRACE_S, NoAnswer, ServerAnalyst

# What tells that the password or the policies are being replaced, and of no fault of the statement.
_SIGN_IN: Final = frozenset({"AUTHENTICATION_FAILED", "REQUIRED_PASSWORD", "WRONG_PASSWORD", "UNKNOWN_USER"})
_UNSIGNED: Final = frozenset({"UNKNOWN_SETTING", "BAD_ARGUMENTS", "BAD_GET"})
_PASSES: Final = frozenset({"TOO_MANY_SIMULTANEOUS_QUERIES", "MEMORY_LIMIT_EXCEEDED", "SERVER_OVERLOADED"})
_SILENT_WAIT_S: Final = 5.0
_PROBE_TIMEOUT_S: Final = 10.0
_REFUSED: Final = {
    "SELECT value FROM memory LIMIT 1": "a column outside the allowlist can be read",
    "SELECT count() FROM system.users": "system tables can be read",
}


@dataclass(frozen=True, slots=True)
class ServerState:
    """What a statement needs to know of the server.

    Attributes:
        prefix: Prefix of settings of one's own.
        secrets: The key and the password.
        tables: The allowlist, as it is there.
        newer: Whether a newer build wrote the entities, whose grants are its own to check.
    """

    prefix: str
    secrets: ServerSecrets
    tables: tuple[AnalysisTable, ...]
    newer: bool


class ServerBoundary:
    """Runs statements as the analyst of a server.

    Args:
        analyst: Sends them.
        state: Reads what they need: before each statement, so that a new key counts at once.
        limits: What one statement may take.
    """

    def __init__(
        self, analyst: ServerAnalyst, state: Callable[[], Awaitable[ServerState]], limits: AnalysisLimits
    ) -> None:
        self._analyst = analyst
        self._state = state
        self._limits = limits

    @property
    def kind(self) -> BoundaryKind:
        """See `AnalysisBoundary.kind`."""
        return "server"

    async def run(self, statement: Statement) -> AnalysisAnswer:
        """See `AnalysisBoundary.run`."""
        try:
            state = await self._state()
        except SecretsLost:
            raise _unavailable() from None
        began = time.perf_counter()
        try:
            data = await self._send(
                state,
                wrapped(statement.sql),
                FORMATS[statement.form],
                statement.scope.org,
                statement.scope.namespaces,
                self._limits.time_s,
            )
        except NoAnswer:
            raise Overloaded("The database gave no answer; try again shortly.", retry_after_s=_SILENT_WAIT_S) from None
        except AnalystFailure as error:
            # A statement that an administrator ends, and a password that is not the row's any more: a rotation.
            if error.cause.name in _SIGN_IN or error.cause.name == "QUERY_WAS_CANCELLED":
                raise _unavailable() from None
            raise failure(error.cause.name, error.text, statement.sql, self._limits) from None
        return read_answer(statement.form, data, (time.perf_counter() - began) * 1000.0)

    async def probe(self) -> None:
        """See `AnalysisBoundary.probe`."""
        try:
            state = await self._state()
            await self._probe(state)
        except SecretsLost as error:
            raise BoundaryBroken(str(error)) from None
        except NoAnswer as error:
            raise BoundarySilent(str(error)) from None
        except LoomError as error:
            raise BoundarySilent(type(error).__name__) from None
        except AnalystFailure as error:
            if error.cause.name in _PASSES:
                raise BoundarySilent(str(error.cause)) from None
            if error.cause.name in _SIGN_IN:
                raise BoundaryBroken("the analyst cannot sign in; run `loom ch-setup`") from None
            raise BoundaryBroken(f"a check of it failed with {error.cause}; run `loom ch-setup`") from None

    async def close(self) -> None:
        """See `AnalysisBoundary.close`."""
        await self._analyst.__aexit__(None, None, None)

    async def _probe(self, state: ServerState) -> None:
        if await self._count(state, CANARY) != b"1":
            raise BoundaryBroken("the policies do not take the key; run `loom ch-setup`")
        for table in state.tables:
            if await self._count(state, table.name) != b"0":
                raise BoundaryBroken("a table shows rows of no organisation; look at its row policies")
        for sql, shown in _REFUSED.items():
            await self._require_refused(state, sql, frozenset({"ACCESS_DENIED"}), shown)
        if state.newer:
            return
        for name in (*(table.name for table in state.tables), CANARY):
            target = quote_identifier(name)
            counted = f"SELECT count() FROM {target}"  # noqa: S608  (a quoted name of the allowlist)
            await self._require_refused(state, counted, _UNSIGNED, "a table has no policy that asks for a scope")
        await self._probe_grants(state)

    async def _probe_grants(self, state: ServerState) -> None:
        shown = await self._unsigned(state, "SHOW GRANTS")
        allowed = {f"{table.name}" for table in state.tables} | {CANARY}
        for line in shown.decode("utf-8", "replace").splitlines():
            if not any(f".{name} TO" in line and line.startswith("GRANT SELECT(") for name in allowed):
                raise BoundaryBroken("the analyst has a grant outside the allowlist; run `loom ch-setup`")

    async def _count(self, state: ServerState, table: str) -> bytes:
        target = quote_identifier(table)
        counted = f"SELECT count() FROM {target}"  # noqa: S608  (a quoted name of the allowlist)
        counts = await self._send(state, counted, "TabSeparated", RESERVED, (RESERVED,), _PROBE_TIMEOUT_S)
        return counts.strip()

    async def _require_refused(self, state: ServerState, sql: str, by: frozenset[str], shown: str) -> None:
        try:
            await self._unsigned(state, sql)
        except AnalystFailure as error:
            if error.cause.name in by:
                return
            raise
        raise BoundaryBroken(f"{shown}; run `loom ch-setup`")

    async def _unsigned(self, state: ServerState, sql: str) -> bytes:
        return await self._analyst.run(
            sql,
            "TSVRaw",
            state.secrets.password,
            {},
            query_id=str(uuid.uuid4()),
            timeout_s=_PROBE_TIMEOUT_S,
        )

    async def _send(
        self, state: ServerState, sql: str, output_format: str, org: str, namespaces: Iterable[str], timeout_s: float
    ) -> bytes:
        query_id = f"{current().request_id or 'probe'}:{uuid.uuid4().hex}"
        signed = scope_settings(
            state.prefix,
            state.secrets.key,
            org=org,
            namespaces=list(namespaces),
            expires_at_s=int(time.time() + scope_ttl_s(timeout_s)),
            query_id=query_id,
        )
        settings = {**FORMAT_SETTINGS, **PLAIN_COLUMNS, **signed, "max_execution_time": timeout_s}
        return await self._analyst.run(
            sql, output_format, state.secrets.password, settings, query_id=query_id, timeout_s=timeout_s
        )


def scope_ttl_s(timeout_s: float) -> float:
    """Returns how long a signature holds: as long as every attempt at a statement may take."""
    return ATTEMPTS * (timeout_s + GRACE_S) + GRACE_S


def is_newer(stamp: str) -> bool:
    """Returns whether a newer build wrote the entities."""
    number = stamp.partition(".")[0]
    return number.isdigit() and int(number) > VERSION


def _unavailable() -> AnalysisUnavailable:
    return AnalysisUnavailable("Analysis is not available now; an operator finds why with `loom doctor`.")
