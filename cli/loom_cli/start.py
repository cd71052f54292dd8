"""What `loom up` does: starts everything, says where, and stops cleanly."""

import asyncio
import gc
import http.client
import json
import os
import sys
import webbrowser
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from loom_cli import first_token, keys, options, ports, run_file, sign_in
from loom_cli.banner import print_banner
from loom_cli.console import ERR, CommandError
from loom_cli.operator import identity_stub, operator_key
from loom_cli.plan import StartPlan
from loom_cli.run_file import RunFile
from loom_cli.signals import until_signal
from loom_common import event_loop
from loom_common.channel import open_channel
from loom_common.clickhouse import ClickHouseSettings
from loom_common.process import embedded_url
from loom_common.settings import CommonSettings

# Source: chosen. Health waits at most this long for its own probes.
_HEALTH_TIMEOUT_S: Final = 10.0
_HEALTH_POLL_S: Final = 0.2


def start(data_dir: Path | None, port: int, *, processes: bool, open_page: bool) -> None:
    """Runs Loom until SIGINT or SIGTERM; a second one ends it at once.

    Args:
        data_dir: Data directory; None for the setting's.
        port: HTTP port on loopback; 0 takes a free one.
        processes: Whether each service is a process of its own.
        open_page: Whether the API page is opened in a browser.

    Raises:
        CommandError: It cannot start; the text says why and what to do.
        SettingsError: A variable cannot be used.
        StorageStartError: The data directory cannot be used.
    """
    common = CommonSettings.load(options.overrides(data_dir))
    directory = common.data_dir.resolve()
    _prepare(directory)
    plan = StartPlan(directory, ports.choose(port), keys.ensure(directory), clickhouse_url(directory))

    started = asyncio.Event()

    async def ready(plan: StartPlan) -> None:
        run, link = await _announce(plan)
        health = await _health(plan)
        # Off since `up`. What a start made stays to the end, so no later collection need look at it.
        gc.freeze()
        gc.enable()
        started.set()
        print_banner(run, health, directory, link)
        if open_page:
            webbrowser.open(f"{plan.http_url}/docs")

    try:
        if processes:
            from loom_cli.processes import serve_processes

            event_loop.run(until_signal(lambda stop: serve_processes(plan, ready, stop), started))
        else:
            _serve_here(plan, ready, started)
    finally:
        _forget(directory)


def _serve_here(plan: StartPlan, ready: Callable[[StartPlan], Awaitable[None]], started: asyncio.Event) -> None:
    # Imported here: `--processes` needs neither the engine nor the models in this process.
    from loom_cli import in_process
    from loom_common.clickhouse import open_clickhouse
    from loom_common.logging import configure_logging
    from loom_common.status import version
    from loom_common.telemetry import Telemetry

    settings = in_process.load_settings(plan)
    store = ClickHouseSettings.load(plan.variables("gateway"))
    common = CommonSettings.load(plan.variables("gateway"))
    configure_logging(_log_level(common), common.log_format, service="loom")
    telemetry = Telemetry("loom", version(), otlp_endpoint=common.otlp_endpoint)
    telemetry.install()

    async def serve(stop: asyncio.Event) -> None:
        async with (
            open_clickhouse(plan.clickhouse_url, database=store.database, settings=store) as ch,
            in_process.running(settings, ch),
        ):
            await ready(plan)
            await stop.wait()
            ERR.print("stopping ...", style="dim")

    try:
        event_loop.run(until_signal(serve, started))
    finally:
        telemetry.shutdown()


def _log_level(common: CommonSettings) -> str:
    """Returns the level that was asked for; without a wish a person at a terminal sees no line per call."""
    asked = "log_level" in common.model_fields_set
    return common.log_level if asked or not sys.stderr.isatty() else "warning"


def _prepare(directory: Path) -> None:
    """Makes the data directory and refuses early where another start holds it, before any port is looked at."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(
            f"the data directory {directory} cannot be made: {error.strerror}; choose another with --data-dir"
        ) from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise CommandError(f"the data directory {directory} cannot be written; choose another with --data-dir")
    other = run_file.read(directory)
    # One that still stops answers no more; the lock of the directory then refuses this start.
    if other is not None and run_file.answers(other):
        raise CommandError(
            f"process {other.pid} runs Loom on {directory} already (at {other.http_url}); "
            "stop it or choose another with --data-dir"
        )


def clickhouse_url(directory: Path) -> str:
    """Returns the URL of the database that a start on this data directory uses."""
    return ClickHouseSettings.load().url.get_secret_value() or embedded_url(directory)


async def _announce(plan: StartPlan) -> tuple[RunFile, str]:
    """Makes the start's token and its link, and writes `run.json`; the link is printed alone."""
    async with open_channel(plan.grpc["identity"], operator_key(plan.data_dir)) as channel:
        token, link = await asyncio.gather(
            first_token.make(identity_stub(channel), plan.data_dir), sign_in.make_owner_link(channel, plan.http_url)
        )
    run = RunFile(
        pid=os.getpid(),
        http_url=plan.http_url,
        mcp_url=plan.mcp_url,
        grpc=plan.grpc,
        token=token,
        org=first_token.ORG,
        namespace=first_token.NAMESPACE,
    )
    run.write(plan.data_dir)
    return run, link


async def _health(plan: StartPlan) -> dict[str, object]:
    """Returns what the gateway says, once it sees every service or has had time to: all of them serve already."""
    loop = asyncio.get_running_loop()
    until = loop.time() + _HEALTH_TIMEOUT_S
    while True:
        health = await asyncio.to_thread(_read_health, plan.addresses["gateway"])
        checks = health.get("checks")
        if loop.time() > until or (isinstance(checks, dict) and all(check.get("ok") for check in checks.values())):
            return health
        await asyncio.sleep(_HEALTH_POLL_S)


def _read_health(address: str) -> dict[str, object]:
    # The standard library's client, which is loaded anyway: httpx takes a third of a second of every start.
    connection = http.client.HTTPConnection(address, timeout=_HEALTH_TIMEOUT_S)
    try:
        connection.request("GET", "/v1/health")
        health: dict[str, object] = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    return health


def _forget(directory: Path) -> None:
    """Removes `run.json` if it is this process's."""
    try:
        run = run_file.read(directory)
    except CommandError:
        return
    if run is not None and run.pid == os.getpid():
        run_file.remove(directory)
