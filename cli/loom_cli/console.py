"""What the command prints: results on standard output, everything for people on standard error."""

import json
from typing import Final, NoReturn

import typer
from rich.console import Console

OUT: Final = Console(soft_wrap=True, highlight=False, emoji=False)
ERR: Final = Console(stderr=True, soft_wrap=True, highlight=False, emoji=False)


class CommandError(Exception):
    """A command cannot do its work. The text is one line: what is wrong and what to do."""


def fail(message: str, code: int = 1) -> NoReturn:
    """Prints one line and ends the command."""
    ERR.print("[bold red]loom:[/]", end=" ")
    ERR.print(" ".join(message.split()), markup=False)
    raise typer.Exit(code)


def print_json(value: object) -> None:
    """Prints a value as JSON for scripts."""
    OUT.print(json.dumps(value, indent=2, ensure_ascii=False), markup=False)
