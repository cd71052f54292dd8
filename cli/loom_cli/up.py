"""`loom up`, as the command line shows it."""

import gc
from typing import Annotated

import typer

from loom_cli import options, ports


def up(
    data_dir: options.DataDir = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="HTTP port on loopback; 0 takes a free one.")
    ] = ports.DEFAULT_HTTP_PORT,
    processes: Annotated[bool, typer.Option("--processes", help="Run each service as a process of its own.")] = False,
    open_page: Annotated[bool, typer.Option("--open", help="Open the API page in a browser.")] = False,
) -> None:
    """Starts Loom on this machine: every service, the gateway and an embedded ClickHouse engine, on loopback only."""
    # A start makes objects by the hundred thousand and drops few: looking for garbage among them takes a tenth of it.
    gc.disable()
    try:
        # Here: services and gRPC take seconds to load, which `loom --help` need not wait for.
        from loom_cli.start import start

        start(data_dir, port, processes=processes, open_page=open_page)
    finally:
        gc.enable()
