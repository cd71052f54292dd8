"""How the operator's commands reach a service: the running one, or where none runs one that they open themselves."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio

from loom_cli import keys, ports, run_file
from loom_cli.console import CommandError
from loom_cli.operator import operator_key
from loom_cli.plan import StartPlan
from loom_common.channel import open_channel


@asynccontextmanager
async def owner_channel(data_dir: Path, service: str = "memory") -> AsyncIterator[grpc.aio.Channel]:
    """Opens a channel to a service as the operator.

    One process holds a data directory: where a Loom runs it does the work, and a second one is never opened beside it.

    Raises:
        CommandError: The directory's keys cannot be used.
        StorageStartError: Another process holds the directory.
        SettingsError: A variable cannot be used.
    """
    run = run_file.read(data_dir)
    if run is not None and run_file.answers(run):
        async with open_channel(run.grpc[service], operator_key(data_dir)) as channel:
            yield channel
        return
    async with _own(data_dir, service) as channel:
        yield channel


@asynccontextmanager
async def _own(data_dir: Path, service: str) -> AsyncIterator[grpc.aio.Channel]:
    # Imported here: with a running Loom neither the engine nor the models are needed.
    from loom_cli import in_process
    from loom_cli.start import clickhouse_url
    from loom_common.clickhouse import ClickHouseSettings, embedded_directory, open_clickhouse
    from loom_common.logging import configure_logging
    from loom_common.settings import CommonSettings

    url = clickhouse_url(data_dir)
    _require_directory(data_dir, is_database=embedded_directory(url) is not None)
    plan = StartPlan(data_dir, ports.choose(0), keys.ensure(data_dir), url)
    settings = in_process.load_settings(plan)
    common = CommonSettings.load(plan.variables("memory"))
    configure_logging(common.log_level if "log_level" in common.model_fields_set else "error", common.log_format)
    store = ClickHouseSettings.load(plan.variables("memory"))
    async with (
        open_clickhouse(plan.clickhouse_url, database=store.database, settings=store) as ch,
        # Whole: identity knows which organisations are switched off, and insights keeps what was spent.
        in_process.running(settings, ch),
        open_channel(plan.grpc[service], operator_key(data_dir)) as channel,
    ):
        yield channel


def _require_directory(data_dir: Path, *, is_database: bool) -> None:
    if is_database and not data_dir.is_dir():
        raise CommandError(f"there is no data directory {data_dir}; name yours with --data-dir")
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
