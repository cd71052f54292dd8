"""Entry point of the `loom` command."""

import sys
from typing import Annotated

import typer

from loom_cli import (
    __version__,
    ch_setup,
    doctor,
    grants,
    knowledge,
    login,
    mcp,
    memories,
    namespaces,
    orgs,
    query,
    reembed,
    replay,
    secrets,
    sign_in,
    status,
    tokens,
    transfer,
    up,
    workers,
)
from loom_cli.console import OUT, CommandError, fail

app = typer.Typer(
    help="Loom: a memory server for AI agents and the people who run them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("up")(up.up)
app.command("status")(status.status)
app.command("doctor")(doctor.doctor)
app.command("mcp")(mcp.mcp)
app.command("ch-setup")(ch_setup.ch_setup)
app.command("query")(query.query)
app.command("reembed")(reembed.reembed)
app.command("replay")(replay.replay)
app.command("export")(transfer.export_memories)
app.command("import")(transfer.import_memories)
app.command("sign-in-link")(sign_in.sign_in_link)
app.command("login")(login.login)
app.command("login-token")(login.token)
app.command("logout")(login.logout)
app.add_typer(tokens.app, name="token")
app.add_typer(namespaces.app, name="namespace")
app.add_typer(grants.app, name="grant")
app.add_typer(orgs.app, name="org")
app.add_typer(secrets.app, name="secrets")
app.add_typer(memories.app, name="memory")
app.add_typer(knowledge.app, name="knowledge")
app.add_typer(workers.app, name="workers")


def _version(wanted: bool) -> None:
    if wanted:
        OUT.print(f"loom {__version__}", markup=False)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Loom: a memory server for AI agents and the people who run them."""


def main() -> None:
    """Runs the command; what a person can mend is one line, never a trace."""
    try:
        app()
    except Exception as error:
        message = _mendable(error)
        if message is None:
            raise
        try:
            fail(message)
        except typer.Exit as end:
            sys.exit(end.exit_code)


def _mendable(error: Exception) -> str | None:
    """Returns what a person can do about an error, or None for a fault of the program."""
    if isinstance(error, CommandError):
        return str(error)
    if isinstance(error, TimeoutError):
        return "Loom did not answer in time; `loom status` tells how it fares"
    # Loaded only when something failed, so that a command which works need not wait for them.
    from loom_client import LoomError as ClientError
    from loom_common.clickhouse import StorageStartError
    from loom_common.errors import LoomError
    from loom_common.server import ListenError
    from loom_common.settings import SettingsError

    if isinstance(error, ClientError):
        return error.message or str(error)
    return str(error) if isinstance(error, (SettingsError, StorageStartError, ListenError, LoomError)) else None


if __name__ == "__main__":
    main()
