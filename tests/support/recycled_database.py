"""Databases of one service that tests use in turn: emptying one takes less time than making its tables."""

import itertools
import json
from collections.abc import Iterator
from typing import Final

from loom_common.clickhouse.engine import EmbeddedEngine, EngineHandle

_NUMBERS: Final = itertools.count(1)
_KEPT: Final = "schema_migrations"


class RecycledDatabases:
    """Hands out databases, and takes back those that hold the tables of one service and nothing else.

    Args:
        service: Whose tables they hold, as its migrations name it.
    """

    def __init__(self, service: str) -> None:
        self._services = sorted(["common", service])
        self._prefix = f"recycled_{service}"
        self._free: list[str] = []
        self._columns = ""

    def one(self, engine: EmbeddedEngine) -> Iterator[str]:
        """Yields the name of a database without rows, new or used before."""
        name = self._free.pop() if self._free else f"{self._prefix}_{next(_NUMBERS)}"
        yield name
        handle = engine.open_handle()
        try:
            if self._empty(handle, name):
                self._free.append(name)
            else:
                handle.execute(f"DROP DATABASE IF EXISTS `{name}` SYNC")
        finally:
            handle.close()

    def _empty(self, handle: EngineHandle, name: str) -> bool:
        """Empties a database; says no where it is not as its migrations left it."""
        tables = _rows(handle, f"SELECT name, total_rows FROM system.tables WHERE database = '{name}' ORDER BY name")
        if _KEPT not in [table for table, _ in tables]:
            return False
        services = _rows(handle, f"SELECT DISTINCT service FROM `{name}`.{_KEPT} ORDER BY service")
        columns = f"SELECT hex(groupBitXor(sipHash64(table, name, type))) FROM system.columns WHERE database = '{name}'"
        [[found]] = _rows(handle, columns)
        if [service for [service] in services] != self._services or (self._columns and self._columns != found):
            return False
        self._columns = str(found)
        for table, rows in tables:
            if table != _KEPT and rows != 0:
                handle.execute(f"TRUNCATE TABLE `{name}`.`{table}` SYNC")
        return True


def _rows(handle: EngineHandle, sql: str) -> list[list[object]]:
    told = handle.execute(sql, "JSONCompactEachRow", settings={"output_format_json_quote_64bit_integers": 0})
    return [json.loads(line) for line in told.splitlines()]
