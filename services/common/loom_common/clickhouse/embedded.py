"""`ClickHouse` over the engine inside this process."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import clickhouse_connect
from clickhouse_connect.datatypes.registry import get_from_name
from clickhouse_connect.driver.binding import quote_identifier
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.insert import InsertContext
from clickhouse_connect.driver.transform import NativeTransform

from loom_common.clickhouse.commit import Committers
from loom_common.clickhouse.embedded_analyst import EmbeddedAnalyst
from loom_common.clickhouse.engine import EmbeddedEngine, EngineHandle, EngineOpenFailed
from loom_common.clickhouse.errors import DRIVER_ERRORS, translated
from loom_common.clickhouse.measuring import measured, measured_insert
from loom_common.clickhouse.pool import HandlePool
from loom_common.clickhouse.protocol import Parameters, Row, Rows, Settings, Table
from loom_common.clickhouse.settings import ClickHouseSettings
from loom_common.clickhouse.tagging import check_bound, next_log_comment, with_statement_settings

logger = logging.getLogger(__name__)

_PING_TIMEOUT_S = 5.0
T = TypeVar("T")


@dataclass(slots=True)
class _Handle:
    """One place of the pool: the driver's client for results, a bare handle for inserts and commands.

    The driver's own insert writes every row to a file in the temporary directory first, and its command path sends
    four statements for one; the bare handle does neither.
    """

    client: Client
    bare: EngineHandle

    def close(self) -> None:
        self.client.close()
        self.bare.close()


class EmbeddedClickHouse:
    """One database of an `EmbeddedEngine`, through a pool of handles. The engine is closed by who opened it."""

    cluster = ""
    exclusive = True

    def __init__(self, engine: EmbeddedEngine, database: str, settings: ClickHouseSettings) -> None:
        self._engine = engine
        self.database = database
        self._settings = settings
        self._killer: EngineHandle | None = None
        self._pool: HandlePool[_Handle] = HandlePool(self._open, settings.pool_size, self._kill)
        self._committers = Committers(self._write, settings.commit_limits())

    async def start(self) -> None:
        """Makes the database where absent and opens the handles.

        Raises:
            EngineOpenFailed: The engine cannot use what lies in its directory.
        """
        with ThreadPoolExecutor(1) as thread:
            await asyncio.get_running_loop().run_in_executor(thread, self._prepare)
        await self._pool.start()

    async def query(
        self,
        sql: str,
        parameters: Parameters | None = None,
        *,
        settings: Settings | None = None,
        timeout_s: float | None = None,
    ) -> Rows:
        """See `ClickHouse.query`."""
        bound = check_bound(sql, parameters)
        limit_s = self._settings.query_timeout_s if timeout_s is None else timeout_s
        clause = with_statement_settings(settings, limit_s)

        def run(handle: _Handle) -> Rows:
            result = handle.client.query(sql, parameters=bound, settings=clause)
            return Rows(tuple(result.column_names), list(map(tuple, result.result_rows)))

        with measured("query"):
            return await self._run(run, clause, limit_s)

    async def command(
        self,
        sql: str,
        parameters: Parameters | None = None,
        *,
        settings: Settings | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """See `ClickHouse.command`."""
        bound = check_bound(sql, parameters)
        limit_s = self._settings.query_timeout_s if timeout_s is None else timeout_s
        applied = {**self._per_handle(), **with_statement_settings(settings, limit_s)}

        def run(handle: _Handle) -> None:
            handle.bare.command(sql, bound, self.database, applied)

        with measured("command"):
            await self._run(run, applied, limit_s)

    async def insert(self, table: Table, rows: Sequence[Sequence[object]]) -> None:
        """See `ClickHouse.insert`."""
        await self._committers.insert(table, rows)

    async def stream(
        self,
        sql: str,
        parameters: Parameters | None = None,
        *,
        settings: Settings | None = None,
        timeout_s: float | None = None,
    ) -> AsyncGenerator[Sequence[Row], None]:
        """See `ClickHouse.stream`."""
        bound = check_bound(sql, parameters)
        clause = with_statement_settings(settings, self._settings.query_timeout_s if timeout_s is None else timeout_s)
        log_comment = str(clause["log_comment"])
        async with self._pool.borrow(log_comment) as borrowed:
            borrowed.discard = True  # unless it is read to its end
            try:
                blocks = await borrowed.call(lambda handle: _open_stream(handle, sql, bound, clause))
                while (block := await borrowed.call(lambda _: next(blocks, None))) is not None:
                    yield block
                borrowed.discard = False
            except DRIVER_ERRORS as error:
                raise (failure := translated(error, log_comment)) from failure.__cause__

    async def ping(self) -> None:
        """See `ClickHouse.ping`."""
        self._engine.directory.check()
        self._engine.directory.check_space()
        await self.query("SELECT 1", timeout_s=_PING_TIMEOUT_S)

    def analyst(self, places: int) -> EmbeddedAnalyst | None:
        """Returns a new analyst of this database, which is closed by who asked for it.

        None where the engine was opened for analyses of another database.

        Args:
            places: Statements that run at once.
        """
        if self._engine.analyst_database != self.database:
            return None
        return EmbeddedAnalyst(self._engine, self.database, self._engine.analyst_key, places=places)

    async def close(self) -> None:
        """See `ClickHouse.close`."""
        await self._committers.close()
        await self._pool.close()
        if self._killer is not None:
            self._killer.close()
            self._killer = None

    async def _run(self, function: Callable[[_Handle], T], settings: Mapping[str, object], limit_s: float) -> T:
        log_comment = str(settings["log_comment"])
        try:
            return await self._pool.run(function, log_comment, limit_s)
        except DRIVER_ERRORS as error:
            raise (failure := translated(error, log_comment)) from failure.__cause__

    async def _write(self, table: Table, rows: Sequence[Sequence[object]]) -> None:
        log_comment = next_log_comment()
        target = f"{quote_identifier(self.database)}.{quote_identifier(table.name)}"
        names = ", ".join(quote_identifier(name) for name in table.column_names)
        statement = f"INSERT INTO {target} ({names})"
        types = [get_from_name(type_) for type_ in table.column_types]

        def run(handle: _Handle) -> None:
            context = InsertContext(target, list(table.column_names), types, rows)
            handle.bare.insert(statement, "Native", _native_blocks(context), log_comment=log_comment)
            # The engine accepts rows into a directory that is gone; these were not stored.
            self._engine.directory.check()

        with measured_insert(table, len(rows)):
            await self._run(run, {"log_comment": log_comment}, self._settings.insert_timeout_s)

    def _open(self) -> _Handle:
        client = clickhouse_connect.get_client(
            interface="chdb",
            path=self._engine.path,
            chdb_options=self._engine.options,
            settings=self._per_handle(),
            tz_mode="aware",
        )
        client.database = self.database
        return _Handle(client, self._engine.open_handle())

    def _per_handle(self) -> dict[str, int]:
        return {"max_memory_usage": self._settings.query_memory_bytes}

    def _kill(self, log_comment: str) -> None:
        if self._killer is not None:
            self._killer.kill(log_comment)

    def _prepare(self) -> None:
        self._killer = self._engine.open_handle()
        try:
            self._killer.execute(f"CREATE DATABASE IF NOT EXISTS {quote_identifier(self.database)}")
        except RuntimeError as error:
            logger.exception("database_not_made")
            raise EngineOpenFailed(Path(self._engine.path)) from error


def _open_stream(
    handle: _Handle, sql: str, parameters: dict[str, object], settings: dict[str, Any]
) -> Iterator[Sequence[Row]]:
    # Entered and not left: closing the client closes the stream, and reading it to its end does too.
    stream: Any = handle.client.query_row_block_stream(sql, parameters=parameters, settings=settings)
    blocks: Iterator[Sequence[Row]] = stream.__enter__()  # Any above: the driver leaves it untyped
    return blocks


def _native_blocks(context: InsertContext) -> Iterator[bytes]:
    """Yields the rows in the engine's Native format.

    The transform puts the INSERT statement before its first block, as HTTP wants it, and keeps an error of a value
    for the caller to raise.
    """
    first = True
    for block in NativeTransform().build_insert(context):
        if context.insert_exception is not None:
            break
        yield block.partition(b" FORMAT Native\n")[2] if first else bytes(block)
        first = False
    if context.insert_exception is not None:
        raise context.insert_exception
