"""Every command explains itself."""

from collections.abc import Iterator

import pytest
import typer
from typer.testing import CliRunner

from loom_cli.__main__ import app


def commands(inside: typer.Typer, *before: str) -> Iterator[tuple[str, ...]]:
    for command in inside.registered_commands:
        assert command.callback is not None
        yield (*before, command.name or command.callback.__name__)
    for group in inside.registered_groups:
        assert group.name is not None
        assert group.typer_instance is not None
        yield (*before, group.name)
        yield from commands(group.typer_instance, *before, group.name)


@pytest.mark.parametrize("command", list(commands(app)), ids=" ".join)
def test_a_command_explains_itself(command: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, [*command, "--help"])
    assert done.exit_code == 0
    assert "Usage" in done.output
