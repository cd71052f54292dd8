"""`ClickHouse` over HTTP, for a ClickHouse server, a cluster, Cloud, or the endpoint over an embedded engine."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

import aiohttp
import clickhouse_connect
from clickhouse_connect.driver.asyncclient import AsyncClient
from clickhouse_connect.driver.binding import quote_identifier

from loom_common.clickhouse.commit import Committers
from loom_common.clickhouse.dataframes import leave_dataframes_out
from loom_common.clickhouse.errors import DRIVER_ERRORS, translated
from loom_common.clickhouse.measuring import measured, measured_insert
from loom_common.clickhouse.pool import GRACE_S
from loom_common.clickhouse.protocol import Parameters, Row, Rows, Settings, Table
from loom_common.clickhouse.settings import ClickHouseSettings
from loom_common.clickhouse.tagging import check_bound, next_log_comment, with_statement_settings
from loom_common.errors import BackendUnavailable

logger = logging.getLogger(__name__)

leave_dataframes_out()

T = TypeVar("T")

_PING_TIMEOUT_S = 5.0
_KILL_TIMEOUT_S = 5.0
_HTTP_ERRORS: Final = (*DRIVER_ERRORS, aiohttp.ClientError)

_KILL = "KILL QUERY WHERE Settings['log_comment'] = {log_comment:String} ASYNC"
_HAS_DATABASE = "SELECT count() FROM system.databases WHERE name = {database:String}"


@dataclass(frozen=True, slots=True, repr=False)
class ServerAddress:
    """A server URL in parts; not shown by repr, because it holds the password."""

    scheme: str
    host: str
    port: int
    user: str
    password: str
    database: str

    @classmethod
    def parse(cls, url: str, default_database: str) -> "ServerAddress":
        """Reads `http(s)://user:password@host:port/database`; a database in the URL wins over the default."""
        parts = urlsplit(url)
        return cls(
            scheme=parts.scheme,
            host=parts.hostname or "localhost",
            port=parts.port or (8443 if parts.scheme == "https" else 8123),
            user=unquote(parts.username or "default"),
            password=unquote(parts.password or ""),
            database=unquote(parts.path.strip("/")) or default_database,
        )


class HttpClickHouse:
    """One database of a server. Closing the connection of a SELECT ends it there; a KILL follows for good measure."""

    exclusive = False

    def __init__(self, client: AsyncClient, address: ServerAddress, settings: ClickHouseSettings) -> None:
        self._client = client
        self.address = address
        self._settings = settings
        self.database = address.database
        self.cluster = settings.cluster
        self._committers = Committers(self._write, settings.commit_limits())
        self._kills: set[asyncio.Task[None]] = set()
        self._closed = False

    @classmethod
    async def connect(cls, url: str, database: str, settings: ClickHouseSettings) -> "HttpClickHouse":
        """Connects, and makes the database where it is absent.

        Raises:
            BackendUnavailable: The server does not answer, or refuses user or password.
        """
        address = ServerAddress.parse(url, database)
        try:
            client = await clickhouse_connect.get_async_client(
                interface=address.scheme,
                host=address.host,
                port=address.port,
                username=address.user,
                password=address.password,
                connect_timeout=settings.connect_timeout_s,
                send_receive_timeout=max(settings.query_timeout_s, settings.insert_timeout_s) + 30,
                # A session runs one statement at a time, and the driver would make one by itself.
                autogenerate_session_id=False,
                # Resending is decided by reason, above; the driver cannot know which statements may run twice.
                query_retries=0,
                connector_limit=settings.pool_size,
                connector_limit_per_host=settings.pool_size,
                settings={"cancel_http_readonly_queries_on_client_close": 1},
                tz_mode="aware",
            )
        except _HTTP_ERRORS as error:
            raise (failure := translated(error, "connect")) from failure.__cause__
        self = cls(client, address, settings)
        try:
            await self._make_database()
        except BaseException:
            await client.close()
            raise
        client.database = address.database
        return self

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
        sent, limit_s = self._sent(settings, timeout_s)
        with measured("query"):
            result = await self._run(lambda: self._client.query(sql, parameters=bound, settings=sent), sent, limit_s)
        return Rows(tuple(result.column_names), list(map(tuple, result.result_rows)))

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
        sent, limit_s = self._sent(settings, timeout_s)
        with measured("command"):
            await self._run(lambda: self._client.command(sql, parameters=bound, settings=sent), sent, limit_s)

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
        sent, _ = self._sent(settings, timeout_s)
        try:
            async with await self._client.query_row_block_stream(sql, parameters=bound, settings=sent) as blocks:
                async for block in blocks:
                    yield block
        except _HTTP_ERRORS as error:
            raise (failure := translated(error, str(sent["log_comment"]))) from failure.__cause__

    async def ping(self) -> None:
        """See `ClickHouse.ping`."""
        # Over an embedded engine this asks for its directory; a server answers it before it looks at anything.
        if not await self._client.ping(_PING_TIMEOUT_S):
            raise BackendUnavailable("The database cannot be reached, or cannot read or write its files.")
        await self.query("SELECT 1", timeout_s=_PING_TIMEOUT_S)

    async def close(self) -> None:
        """See `ClickHouse.close`."""
        await self._committers.close()
        if self._closed:
            return
        self._closed = True
        if self._kills:
            await asyncio.wait(self._kills)
        await self._client.close()

    def _sent(self, settings: Settings | None, timeout_s: float | None) -> tuple[dict[str, Any], float]:
        limit_s = self._settings.query_timeout_s if timeout_s is None else timeout_s
        sent = with_statement_settings(settings, limit_s)
        sent.setdefault("max_memory_usage", self._settings.query_memory_bytes)
        sent["query_id"] = _query_id(str(sent["log_comment"]))
        return sent, limit_s

    async def _run(self, call: Callable[[], Awaitable[T]], settings: Mapping[str, object], limit_s: float) -> T:
        if self._closed:
            raise BackendUnavailable("The database is shutting down.")
        log_comment = str(settings["log_comment"])
        try:
            async with asyncio.timeout(limit_s + GRACE_S):
                return await call()
        except asyncio.CancelledError:
            self._kill_later(log_comment)
            raise
        except _HTTP_ERRORS as error:
            if isinstance(error, TimeoutError):
                self._kill_later(log_comment)
            raise (failure := translated(error, log_comment)) from failure.__cause__

    async def _write(self, table: Table, rows: Sequence[Sequence[object]]) -> None:
        log_comment = next_log_comment()
        settings: dict[str, object] = {"log_comment": log_comment, "query_id": _query_id(log_comment)}
        if self.cluster and table.quorum:
            # One after the other, or a sequential read could not tell which inserts came before it.
            settings |= {"insert_quorum": "auto", "insert_quorum_parallel": 0}
        with measured_insert(table, len(rows)):
            await self._run(
                lambda: self._client.insert(
                    table.name,
                    rows,
                    column_names=list(table.column_names),
                    column_type_names=list(table.column_types),
                    database=self.database,
                    settings=settings,
                ),
                settings,
                self._settings.insert_timeout_s,
            )

    def _kill_later(self, log_comment: str) -> None:
        async def kill() -> None:
            try:
                async with asyncio.timeout(_KILL_TIMEOUT_S):
                    await self._client.command(_KILL, parameters={"log_comment": log_comment})
            except _HTTP_ERRORS as error:
                logger.warning("kill_failed", extra={"log_comment": log_comment, "text": str(error)[:500]})

        if self._closed:
            return
        task = asyncio.get_running_loop().create_task(kill())
        self._kills.add(task)
        task.add_done_callback(self._kills.discard)

    async def _make_database(self) -> None:
        # Asked first: a user that may not create databases can still use one that is there.
        if (await self.query(_HAS_DATABASE, {"database": self.database})).scalar():
            return
        on_cluster = f" ON CLUSTER {quote_identifier(self.cluster)}" if self.cluster else ""
        await self.command(f"CREATE DATABASE IF NOT EXISTS {quote_identifier(self.database)}{on_cluster}")


def _query_id(log_comment: str) -> str:
    return f"loom-{log_comment.rpartition(' ')[2]}"
