"""A service as a process of its own: settings, storage, the service, signals, a clean stop."""

import asyncio
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NoReturn, TypeVar
from urllib.parse import quote

from loom_common import event_loop
from loom_common.clickhouse import ClickHouse, ClickHouseSettings, StorageStartError, open_clickhouse
from loom_common.errors import LoomError
from loom_common.logging import configure_logging
from loom_common.server import ListenError
from loom_common.settings import CommonSettings, SettingsError
from loom_common.status import version
from loom_common.telemetry import Telemetry

S = TypeVar("S", bound=CommonSettings)
OpenService = Callable[[S, ClickHouse], AbstractAsyncContextManager[object]]


def run(open_service: OpenService[S], settings_class: type[S]) -> NoReturn:
    """Runs a service until SIGINT or SIGTERM, lets its running calls end, and exits with 0.

    What stops a start is printed as one line, and the exit code is 1. A second signal ends the process at once.

    Args:
        open_service: The service's `wiring.open_service`.
        settings_class: Its settings.
    """
    name = open_service.__module__.partition(".")[0].removeprefix("loom_")
    try:
        settings = settings_class.load()
        store = ClickHouseSettings.load()
    except SettingsError as error:
        _refuse(name, error)
    configure_logging(settings.log_level, settings.log_format, service=name)
    telemetry = Telemetry(name, version(), otlp_endpoint=settings.otlp_endpoint)
    telemetry.install()
    url = store.url.get_secret_value() or embedded_url(settings.data_dir)
    try:
        event_loop.run(_serve(open_service, settings, store, url))
    except (SettingsError, ListenError, StorageStartError, LoomError) as error:
        _refuse(name, error)
    finally:
        telemetry.shutdown()
    sys.exit(0)


def embedded_url(data_dir: Path) -> str:
    """Returns the URL of the data directory's own engine."""
    return f"chdb://{quote(str(data_dir.resolve()))}"


async def _serve(open_service: OpenService[S], settings: S, store: ClickHouseSettings, url: str) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stopping() -> None:
        stop.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping)
    async with (
        open_clickhouse(url, database=store.database, settings=store) as ch,
        open_service(settings, ch),
    ):
        await stop.wait()


def _refuse(name: str, error: Exception) -> NoReturn:
    print(f"loom {name}: {error}", file=sys.stderr)  # noqa: T201 - logging may not be set up, and people read this
    sys.exit(1)
