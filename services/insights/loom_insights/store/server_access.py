"""What a ClickHouse server holds for analyses: read as Loom's own user, written as an administrator of access."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from loom_common.analysis import AnalysisTable
from loom_common.clickhouse import ClickHouse
from loom_common.errors import LoomError
from loom_insights.domain.server_entities import (
    ANALYST,
    CANARY,
    LOG_TEXT_CUT,
    OTHERS_POLICY,
    PREFIXES,
    PROFILE,
    SCOPE_POLICY,
)

_COLUMNS: Final = """SELECT table, name FROM system.columns
WHERE database = currentDatabase() AND table IN {tables:Array(String)}"""
_STAMP: Final = """SELECT value FROM system.settings_profile_elements
WHERE profile_name = {profile:String} AND setting_name IN {names:Array(String)} ORDER BY value LIMIT 1"""
_HAS_USER: Final = "SELECT count() FROM system.users WHERE name = {name:String}"
_WIDENING: Final = """SELECT short_name, table FROM system.row_policies
WHERE database = currentDatabase() AND table IN {tables:Array(String)} AND NOT is_restrictive
    AND short_name NOT IN {ours:Array(String)} ORDER BY table, short_name LIMIT 20"""
_ELSEWHERE: Final = """SELECT DISTINCT database FROM system.row_policies
WHERE short_name = {policy:String} AND database != currentDatabase() ORDER BY database LIMIT 5"""
# The prefixes that there are, one statement each: the name of a setting cannot be bound.
_TAKES: Final = {prefix: f"SELECT 1 SETTINGS {prefix}loom_probe = 1" for prefix in PREFIXES}


class ServerAccess:
    """Reads and writes access entities."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch

    @property
    def database(self) -> str:
        """Database of the tables."""
        return self._ch.database

    @property
    def cluster(self) -> str:
        """Cluster that access is written on."""
        return self._ch.cluster

    async def prefix(self) -> str:
        """Returns the first prefix of settings of one's own that the server takes; empty where it takes none."""
        for prefix, statement in _TAKES.items():
            try:
                await self._ch.query(statement)
            except LoomError as error:
                if getattr(error.__cause__, "name", None) != "UNKNOWN_SETTING":
                    raise
            else:
                return prefix
        return ""

    async def present(self, tables: Iterable[AnalysisTable]) -> tuple[tuple[AnalysisTable, ...], tuple[str, ...]]:
        """Returns the tables with the columns that are there, and the names of what is not there yet."""
        wanted = sorted(tables, key=lambda table: table.name)
        rows = await self._ch.query(_COLUMNS, {"tables": [table.name for table in wanted]})
        there: dict[str, set[str]] = {}
        for table, column in rows:
            there.setdefault(str(table), set()).add(str(column))
        found, absent = [], []
        for table in wanted:
            columns = tuple(column for column in table.columns if column.name in there.get(table.name, ()))
            absent += [f"{table.name}.{column.name}" for column in table.columns if column not in columns]
            if {"org", "namespace"} <= {column.name for column in columns}:
                found.append(replace(table, columns=columns))
        return tuple(found), tuple(absent)

    async def stamp(self) -> str:
        """Returns which set of entities is written; empty for none."""
        names = [f"{prefix}loom_version" for prefix in PREFIXES]
        rows = await self._ch.query(_STAMP, {"profile": PROFILE, "names": names})
        first = rows.first()
        return str(first[0]).strip("'") if first else ""

    async def has_analyst(self) -> bool:
        """Returns whether the analyst exists."""
        return bool((await self._ch.query(_HAS_USER, {"name": ANALYST})).scalar())

    async def widening(self, tables: Iterable[str]) -> list[str]:
        """Returns policies of others that would show the analyst more, as `policy ON table`."""
        named = {"tables": [*tables, CANARY], "ours": [SCOPE_POLICY, OTHERS_POLICY]}
        rows = await self._ch.query(_WIDENING, named)
        return [f"{policy} ON {table}" for policy, table in rows]

    async def elsewhere(self) -> list[str]:
        """Returns other databases whose tables carry the analyst's policy: a server takes one Loom."""
        rows = await self._ch.query(_ELSEWHERE, {"policy": SCOPE_POLICY})
        return [str(database) for (database,) in rows]

    async def write(self, statement: str) -> None:
        """Runs one statement of a write, which may carry a secret: its text is kept out of the server's logs."""
        await self._ch.command(statement, settings=LOG_TEXT_CUT)
