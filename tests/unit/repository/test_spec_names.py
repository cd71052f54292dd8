"""Every name that the design fixes is there, or is listed as still to come."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

from loom_cli.__main__ import app
from loom_protos import registry

ROOT = Path(__file__).parents[3]
NAMES = [
    tuple(line.split("\t"))
    for line in (ROOT / "tests" / "unit" / "spec_names.txt").read_text("utf-8").splitlines()
    if line and not line.startswith("#")
]


def tables() -> dict[str, str]:
    """Returns every table of every migration and the package that makes it."""
    found = {}
    for folder in ("services/*", "gateway"):
        for path in ROOT.glob(f"{folder}/loom_*/migrations/*.sql"):
            for table in re.findall(r"CREATE TABLE IF NOT EXISTS (\w+)", path.read_text("utf-8")):
                found[table] = path.parts[-3]
    return found


def commands() -> dict[str, str]:
    """Returns every command of the command line, such as `token create`."""

    def walk(command: Any, path: str) -> list[str]:
        inner = getattr(command, "commands", None)
        if inner is None:
            return [path]
        return [name for word, child in inner.items() for name in walk(child, f"{path} {word}".strip())]

    return dict.fromkeys(walk(typer.main.get_command(app), ""), "loom_cli")


def events() -> dict[str, str]:
    """Returns every event of a streamed answer that the gateway's code names."""
    found = {}
    for path in (ROOT / "gateway" / "loom_gateway").rglob("*.py"):
        for event in re.findall(r"[\"'](loom\.(?:citations|step|text_done))[\"']", path.read_text("utf-8")):
            found[event] = "loom_gateway"
    return found


BUILT = {
    "setting": registry()["settings"],
    "op": registry()["ops"],
    "error": registry()["errors"],
    "table": tables(),
    "command": commands(),
    "event": events(),
}


@pytest.mark.parametrize("kind", BUILT)
def test_every_owned_name_is_in_the_build_and_no_later_one_is(kind: str) -> None:
    listed = {name: owner for of, name, owner in NAMES if of == kind}
    assert listed
    missing = {name: owner for name, owner in listed.items() if owner != "later" and BUILT[kind].get(name) != owner}
    assert missing == {}
    assert {name for name, owner in listed.items() if owner == "later" and name in BUILT[kind]} == set()
