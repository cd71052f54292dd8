"""The database as memory's repositories see it, so that the tier hears of everything that is written.

It sits below the repositories and not beside them: who adds a way to write cannot forget the tier.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, Parameters, Row, Rows, Settings, StatementFailed, Table
from loom_common.errors import Overloaded
from loom_memory.store import embeddings, stubs
from loom_memory.tier.cache import Tier
from loom_memory.tier.events import TABLES, by_scope

_NAMES_A_TABLE: Final = re.compile(rf"\b(?:{'|'.join(sorted(TABLES))})\b")
# Writes the same rows into other files.
_CHANGES_NOTHING: Final = re.compile(r"\s*OPTIMIZE\s", re.IGNORECASE)
HARMLESS: Final = frozenset({embeddings.REMOVE, stubs.REMOVE, stubs.REST})
"""Statements that change nothing a search shows: they remove vectors of no current version, and change stubs."""

# Rows taken in at once. Source: chosen; some two milliseconds.
_AT_ONCE: Final = 64


class WatchedClickHouse:
    """A `ClickHouse` that tells the tier what was stored through it.

    An insert is told before its caller hears of it, so that whoever is answered finds it. Another statement that names
    one of the tables makes the tier read its namespace anew, or all where it names none, but for those that change
    nothing a search shows.
    """

    def __init__(self, inner: ClickHouse, tier: Tier, harmless: frozenset[str] = frozenset()) -> None:
        # `harmless` are the statements that change nothing shown.
        self._inner = inner
        self._tier = tier
        self._harmless = harmless

    @property
    def database(self) -> str:
        """See `ClickHouse.database`."""
        return self._inner.database

    @property
    def cluster(self) -> str:
        """See `ClickHouse.cluster`."""
        return self._inner.cluster

    @property
    def exclusive(self) -> bool:
        """See `ClickHouse.exclusive`."""
        return self._inner.exclusive

    async def query(
        self,
        sql: str,
        parameters: Parameters | None = None,
        *,
        settings: Settings | None = None,
        timeout_s: float | None = None,
    ) -> Rows:
        """See `ClickHouse.query`."""
        return await self._inner.query(sql, parameters, settings=settings, timeout_s=timeout_s)

    async def command(
        self,
        sql: str,
        parameters: Parameters | None = None,
        *,
        settings: Settings | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """See `ClickHouse.command`."""
        scope = _scope_of(parameters or {})
        is_told = sql not in self._harmless and not _CHANGES_NOTHING.match(sql) and bool(_NAMES_A_TABLE.search(sql))
        try:
            await self._inner.command(sql, parameters, settings=settings, timeout_s=timeout_s)
        except BaseException:
            if is_told:
                self._tier.doubt(scope)
            raise
        if is_told and _ends_later(sql, settings or {}):
            self._tier.doubt(scope)
        elif is_told:
            self._tier.changed(scope)

    async def insert(self, table: Table, rows: Sequence[Sequence[object]]) -> None:
        """See `ClickHouse.insert`."""
        if table.name not in TABLES:
            await self._inner.insert(table, rows)
            return
        parts = list(by_scope(rows))
        try:
            await self._inner.insert(table, rows)
            await self._tell(table, parts)
        except BaseException as error:
            if not _is_refused(error):
                # Whether the rows are stored, or will be in a moment, nobody knows.
                for scope, _ in parts:
                    self._tier.doubt(scope)
            raise

    def stream(
        self,
        sql: str,
        parameters: Parameters | None = None,
        *,
        settings: Settings | None = None,
        timeout_s: float | None = None,
    ) -> AsyncGenerator[Sequence[Row], None]:
        """See `ClickHouse.stream`."""
        return self._inner.stream(sql, parameters, settings=settings, timeout_s=timeout_s)

    async def ping(self) -> None:
        """See `ClickHouse.ping`."""
        await self._inner.ping()

    async def close(self) -> None:
        """See `ClickHouse.close`."""
        await self._inner.close()

    async def _tell(self, table: Table, parts: Sequence[tuple[Scope, Sequence[Sequence[object]]]]) -> None:
        for scope, part in parts:
            for first in range(0, len(part), _AT_ONCE):
                if first:
                    await asyncio.sleep(0)
                self._tier.stored(scope, table.name, part[first : first + _AT_ONCE])


def _ends_later(sql: str, settings: Settings) -> bool:
    """Says whether a statement may go on changing rows after its answer."""
    return sql.lstrip().upper().startswith("ALTER") and not settings.get("mutations_sync")


def _is_refused(error: BaseException) -> bool:
    """Says whether an insert's error tells that nothing was written."""
    cause = error.__cause__
    if isinstance(cause, StatementFailed):
        return cause.known_unwritten
    return isinstance(error, Overloaded | ValueError)


def _scope_of(parameters: Parameters) -> Scope | None:
    """Returns the namespace that a statement binds, or None where it may change others."""
    org, namespace = parameters.get("org"), parameters.get("namespace")
    if isinstance(org, str) and isinstance(namespace, str) and org and namespace:
        return Scope(org, namespace)
    return None
