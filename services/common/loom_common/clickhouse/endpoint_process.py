"""The endpoint as a process of its own: opens the engine, serves, and says on stdout where.

python -m loom_common.clickhouse.endpoint --dir DIR --port 0 --password-file FILE
python -m loom_common.clickhouse.endpoint --dir DIR --uds PATH
"""

import argparse
import json
import os
import socket
import sys
from pathlib import Path

import uvicorn

from loom_common.clickhouse.directory import StorageStartError
from loom_common.clickhouse.endpoint import ClickHouseEndpoint, EndpointLimits
from loom_common.clickhouse.engine import EmbeddedEngine
from loom_common.clickhouse.settings import ClickHouseSettings
from loom_common.settings import SettingsError

# Above the driver's 30 s, so that the client closes idle connections first and never writes into a closing one.
_KEEP_ALIVE_S = 75
_STOP_S = 10


def main() -> None:
    """Runs the process until SIGINT or SIGTERM; exits with 1 and one line when it cannot start."""
    arguments = _parser().parse_args()
    try:
        settings = ClickHouseSettings.load()
        engine = EmbeddedEngine.open(arguments.dir, settings.engine_limits(), min_free_bytes=settings.min_free_bytes)
    except (StorageStartError, SettingsError) as error:
        sys.exit(f"loom: {error}")
    try:
        _serve(engine, settings, arguments)
    finally:
        engine.close()


def _serve(engine: EmbeddedEngine, settings: ClickHouseSettings, arguments: argparse.Namespace) -> None:
    password = None if arguments.uds else arguments.password_file.read_text().strip()
    app = ClickHouseEndpoint(
        engine,
        password=password,
        pool_size=settings.pool_size,
        limits=EndpointLimits(query_memory_bytes=settings.query_memory_bytes),
    )
    listener = _listen(arguments)
    url = f"unix:{arguments.uds}" if arguments.uds else f"http://{arguments.host}:{listener.getsockname()[1]}"
    engine.directory.announce(url)
    config = uvicorn.Config(
        app,
        lifespan="on",
        log_level="warning",
        access_log=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_STOP_S,
    )
    server = _AnnouncingServer(config, url)
    with listener:
        server.run(sockets=[listener])


def _listen(arguments: argparse.Namespace) -> socket.socket:
    if arguments.uds:
        listener = socket.socket(socket.AF_UNIX)
        Path(arguments.uds).unlink(missing_ok=True)
        mask = os.umask(0o177)  # 0600 from the moment it exists
        try:
            listener.bind(str(arguments.uds))
        finally:
            os.umask(mask)
    else:
        listener = socket.socket(socket.AF_INET)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((arguments.host, arguments.port))
    listener.listen(256)
    return listener


class _AnnouncingServer(uvicorn.Server):
    """Writes one line of JSON to stdout when it accepts connections, for the process that started it."""

    def __init__(self, config: uvicorn.Config, url: str) -> None:
        super().__init__(config)
        self._url = url

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            sys.stdout.write(json.dumps({"url": self._url, "pid": os.getpid()}) + "\n")
            sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="loom-clickhouse-endpoint", description=__doc__)
    parser.add_argument("--dir", type=Path, required=True, help="data directory; the engine is in its clickhouse/")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one")
    secret = parser.add_mutually_exclusive_group(required=True)
    secret.add_argument("--password-file", type=Path, help="file with the password that clients must show")
    secret.add_argument("--uds", type=Path, help="path of a socket (0600) to listen on instead")
    return parser
