"""Opens the engine that a URL names; the one place that knows which kinds there are."""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from loom_common.clickhouse.directory import StorageStartError
from loom_common.clickhouse.protocol import ClickHouse
from loom_common.clickhouse.settings import ClickHouseSettings


class UnknownEngine(StorageStartError):
    """The URL names no engine that Loom can use; the URL itself may hold a password and is not repeated."""

    def __init__(self) -> None:
        super().__init__(
            "LOOM_CLICKHOUSE_URL must be chdb:///<data directory> or http(s)://user:password@host:port/database"
        )


def embedded_directory(url: str) -> Path | None:
    """Returns the data directory of a `chdb:///<dir>` URL, or None when the URL names a server.

    Raises:
        UnknownEngine: It is neither.
    """
    parts = urlsplit(url)
    if parts.scheme in ("http", "https") and parts.hostname:
        return None
    path = unquote(parts.path)
    if parts.scheme != "chdb" or parts.netloc or not path.strip("/"):
        raise UnknownEngine
    return Path(path).expanduser()


@asynccontextmanager
async def open_clickhouse(url: str, *, database: str, settings: ClickHouseSettings) -> AsyncIterator[ClickHouse]:
    """Opens one database of the engine that `url` names, makes the database where absent, and closes it at the end.

    With `chdb:///<dir>` the engine itself is opened and closed too, so that one call serves a whole process; call it
    on the main thread, which must load the engine.

    Raises:
        StorageStartError: The URL or its directory cannot be used; the message is for the operator.
        BackendUnavailable: The server does not answer.
    """
    # It logs the value that it could not serialise, with a traceback; what matters of it is logged by `errors`.
    logging.getLogger("clickhouse_connect.driver.transform").setLevel(logging.CRITICAL)
    directory = embedded_directory(url)
    if directory is None:
        from loom_common.clickhouse.http import HttpClickHouse  # here: a process on chdb needs no HTTP client

        server = await HttpClickHouse.connect(url, database, settings)
        try:
            yield server
        finally:
            await server.close()
        return
    # Loaded here only: the engine takes 280 MB and must not come with every import of this package.
    from loom_common.clickhouse.embedded import EmbeddedClickHouse
    from loom_common.clickhouse.engine import EmbeddedEngine

    engine = EmbeddedEngine.open(
        directory, settings.engine_limits(), min_free_bytes=settings.min_free_bytes, database=database
    )
    try:
        embedded = EmbeddedClickHouse(engine, database, settings)
        try:
            # Inside: a start that is cancelled half way has handles too, which must be closed before the engine.
            await embedded.start()
            yield embedded
        finally:
            await embedded.close()
    finally:
        engine.close()


def own_write_reads(ch: ClickHouse) -> Mapping[str, int]:
    """Returns the settings with which a query sees every acknowledged write, whichever replica answers it.

    On a single engine that is so without any.
    """
    return {"select_sequential_consistency": 1} if ch.cluster else {}
