"""Fixtures over the real engine: one engine directory per pytest process, a fresh database per test.

`clickhouse` gives the embedded engine, which is what most repositories need. `any_clickhouse` runs a test twice: over
the embedded engine, and over HTTP through the endpoint in front of the same engine.
"""

# ruff: noqa: I001  (the engine must be loaded first, on the main thread)
from loom_common.clickhouse.engine import EmbeddedEngine

import asyncio
import contextlib
import itertools
import json
import os
import re
import secrets
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from loom_common.clickhouse import ClickHouse, ClickHouseSettings, Rows, open_clickhouse
from loom_common.clickhouse.embedded import EmbeddedClickHouse
from loom_common.clickhouse.endpoint import ClickHouseEndpoint
from loom_common.clickhouse.engine_config import EngineLimits
from loom_common.clickhouse.protocol import Parameters, Settings

_DATABASES = itertools.count(1)


@pytest.fixture(scope="session")
def clickhouse_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedEngine]:
    """The engine of this pytest process."""
    path = tmp_path_factory.mktemp("engine")
    engine = EmbeddedEngine.open(path, EngineLimits(memory_bytes=4 << 30, cache_bytes=64 << 20), min_free_bytes=0)
    yield engine
    engine.close()


@pytest.fixture
def clickhouse_settings() -> ClickHouseSettings:
    """Settings with few handles, so that tests meet a busy pool."""
    return ClickHouseSettings(pool_size=2)


@pytest.fixture
def clickhouse_database(clickhouse_engine: EmbeddedEngine, request: pytest.FixtureRequest) -> Iterator[str]:
    """Name of a database that exists for this test alone."""
    name = f"t{next(_DATABASES)}_{re.sub(r'[^a-z0-9]+', '_', request.node.name.lower())[:40]}"
    yield name
    handle = clickhouse_engine.open_handle()
    handle.execute(f"DROP DATABASE IF EXISTS `{name}` SYNC")
    handle.close()


@pytest.fixture
async def clickhouse(
    clickhouse_engine: EmbeddedEngine, clickhouse_database: str, clickhouse_settings: ClickHouseSettings
) -> AsyncIterator[ClickHouse]:
    """The embedded engine on a fresh database."""
    ch = EmbeddedClickHouse(clickhouse_engine, clickhouse_database, clickhouse_settings)
    await ch.start()
    try:
        yield ch
    finally:
        await ch.close()


class MeanwhileClickHouse(EmbeddedClickHouse):
    """Does something once, between the next read of a table and what its reader makes of that."""

    def __init__(self, engine: EmbeddedEngine, database: str, settings: ClickHouseSettings) -> None:
        super().__init__(engine, database, settings)
        self._table = ""
        self._work: Callable[[], Awaitable[object]] | None = None

    def after_reading(self, table: str, work: Callable[[], Awaitable[object]]) -> None:
        """Does `work` after the next read of `table`."""
        self._table, self._work = f" {table} ", work

    async def query(
        self,
        sql: str,
        parameters: Parameters | None = None,
        *,
        settings: Settings | None = None,
        timeout_s: float | None = None,
    ) -> Rows:
        """See `ClickHouse.query`."""
        rows = await super().query(sql, parameters, settings=settings, timeout_s=timeout_s)
        if self._work is not None and self._table in sql:
            work, self._work = self._work, None
            await work()
        return rows


class EndpointThread:
    """The endpoint on a loop of its own in a thread, as another process would have it."""

    def __init__(self, engine: EmbeddedEngine, **options: Any) -> None:
        self.password = secrets.token_hex(8)
        app = ClickHouseEndpoint(engine, password=self.password, pool_size=4, **options)
        config = uvicorn.Config(app, lifespan="on", log_level="warning", access_log=False)
        self._server = uvicorn.Server(config)
        # Signals belong to the main thread and to pytest.
        self._server.capture_signals = contextlib.nullcontext  # type: ignore[assignment,method-assign]
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listener]})

    def url(self, database: str = "") -> str:
        return f"http://loom:{self.password}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        self._thread.start()
        for _ in range(1000):
            if self._server.started:
                return
            self._thread.join(0.01)
        raise TimeoutError("the endpoint did not start")

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(20)
        self._listener.close()


@pytest.fixture(scope="session")
def clickhouse_endpoint(clickhouse_engine: EmbeddedEngine) -> Iterator[EndpointThread]:
    """The HTTP endpoint over this process's engine."""
    endpoint = EndpointThread(clickhouse_engine)
    endpoint.start()
    yield endpoint
    endpoint.stop()


@pytest.fixture
async def http_clickhouse(
    clickhouse_endpoint: EndpointThread, clickhouse_database: str, clickhouse_settings: ClickHouseSettings
) -> AsyncIterator[ClickHouse]:
    """The HTTP client on a fresh database."""
    url = clickhouse_endpoint.url(clickhouse_database)
    async with open_clickhouse(url, database="unused", settings=clickhouse_settings) as ch:
        yield ch


@pytest.fixture(params=["embedded", "http"])
def any_clickhouse(request: pytest.FixtureRequest) -> ClickHouse:
    """Both ways to an engine, one after the other."""
    name = "clickhouse" if request.param == "embedded" else "http_clickhouse"
    ch: ClickHouse = request.getfixturevalue(name)
    return ch


class EndpointProcess:
    """The endpoint in a process of its own, over a directory of its own."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.process = process
        self.url = url

    @property
    def pid(self) -> int:
        return self.process.pid


@contextlib.asynccontextmanager
async def endpoint_process(directory: Path, *, uds: Path | None = None) -> AsyncIterator[EndpointProcess]:
    """Starts `python -m loom_common.clickhouse.endpoint` on a free port, or on a socket, and stops it with SIGTERM."""
    password_file = directory.parent / f"{directory.name}.password"
    if not password_file.exists():
        password_file.write_text(secrets.token_hex(8))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "loom_common.clickhouse.endpoint", "--dir", str(directory),
        *(("--uds", str(uds)) if uds else ("--password-file", str(password_file))),
        stdout=asyncio.subprocess.PIPE, env={**os.environ, "LOOM_CLICKHOUSE_MIN_FREE_BYTES": "0"},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            ready = json.loads(await process.stdout.readline())
        yield EndpointProcess(process, ready["url"].replace("http://", f"http://loom:{password_file.read_text()}@"))
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(30):
            await process.communicate()
