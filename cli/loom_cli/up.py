"""`loom up`, as the command line shows it."""

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
    from loom_cli.start import (
        start,  # here: services and gRPC take seconds to load, which `loom --help` need not wait for
    )

    start(data_dir, port, processes=processes, open_page=open_page)
