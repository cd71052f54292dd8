"""`loom mcp`: MCP over standard input and output, for clients on this machine that start their servers themselves."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loom_cli import options, run_file
from loom_cli.console import CommandError

if TYPE_CHECKING:
    from loom_cli.mcp_gateway import Target


def mcp(
    toolset: Annotated[
        str | None, typer.Option(help="Tools to show: default, coding, assistant, admin or all.", show_default=False)
    ] = None,
    namespace: options.Namespace = None,
    data_dir: options.DataDir = None,
) -> None:
    """Serves MCP on standard input and output by passing it on to a running Loom; clients start this, not people."""
    from loom_cli.mcp_bridge import Bridge, stdio  # here: `loom --help` need not wait for them
    from loom_cli.mcp_gateway import Gateway

    headers = {"X-Loom-Toolset": toolset, "X-Loom-Namespace": namespace}
    directory = options.directory(data_dir)

    async def serve() -> None:
        async with Gateway(
            lambda: _target(directory), {name: value for name, value in headers.items() if value}
        ) as way:
            await way.check()
            lines, write = stdio()
            await Bridge(way, write).serve(lines)

    asyncio.run(serve())


def _target(directory: Path) -> "Target":
    """Returns where Loom is now: as the environment says, else the one on the data directory.

    Raises:
        CommandError: No address is set and no Loom runs there, or a token is missing.
    """
    from loom_cli.mcp_gateway import Target
    from loom_cli.settings import ClientSettings

    settings = ClientSettings.load()
    url, token = settings.base_url, settings.api_key.get_secret_value()
    if url and not token:
        # The token of the Loom on this machine is not another one's to see.
        raise CommandError("LOOM_BASE_URL is set and LOOM_API_KEY is not; set a token of that Loom, or neither")
    if url:
        return Target(url.rstrip("/"), token)
    run = run_file.running(directory)
    return Target(run.http_url, token or run.token)
