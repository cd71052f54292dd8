"""`loom doctor`: the data directory and the ports of this machine."""

import os
import shutil
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from loom_cli import ports
from loom_cli.console import CommandError
from loom_cli.doctor_findings import Finding, ok, problem, warning
from loom_cli.operator import operator_key
from loom_common.clickhouse import ClickHouseSettings
from loom_common.settings import Service

DIRECTORY: Final = "directory"
PORTS: Final = "ports"
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def examine(directory: Path, *, here: bool) -> Iterator[Finding]:
    """Yields how the data directory fares and, where no Loom runs on it, whether one could listen.

    Args:
        directory: Data directory.
        here: Whether a Loom runs on it.
    """
    yield from _directory(directory)
    if not here:
        yield from _ports()


def _directory(directory: Path) -> Iterator[Finding]:
    try:
        there = directory.exists()
    except OSError as error:
        yield problem(
            DIRECTORY,
            f"{directory} cannot be looked at ({error.strerror})",
            "Run this as the user who starts Loom, or choose another one with --data-dir.",
        )
        return
    if not there:
        parent = next(path for path in directory.parents if path.exists())
        if os.access(parent, os.W_OK | os.X_OK):
            yield ok(DIRECTORY, f"{directory} is not there yet; the first start makes it")
        else:
            yield problem(DIRECTORY, f"{directory} cannot be made", "Choose another one with --data-dir.")
        return
    if not directory.is_dir() or not os.access(directory, os.W_OK | os.X_OK):
        yield problem(
            DIRECTORY,
            f"{directory} cannot be written",
            "Run this as the user who starts Loom, or choose another one with --data-dir.",
        )
        return
    yield _space(directory)
    yield from _secrets(directory)


def _space(directory: Path) -> Finding:
    free_bytes = shutil.disk_usage(directory).free
    needed_bytes = ClickHouseSettings.load().min_free_bytes
    message = f"{directory} has {free_bytes >> 20} MiB free"
    if free_bytes < needed_bytes:
        return problem(DIRECTORY, message, f"Free some: a start asks for {needed_bytes >> 20} MiB.")
    if free_bytes < 4 * needed_bytes:
        return warning(DIRECTORY, message, f"A start is refused below {needed_bytes >> 20} MiB.")
    return ok(DIRECTORY, message)


def _secrets(directory: Path) -> Iterator[Finding]:
    private = [directory / "secret", directory / "run.json", *sorted((directory / "keys").glob("*.jwk"))]
    there = [path for path in private if path.exists()]
    if not there:
        return
    shared = [path for path in there if path.stat().st_mode & _OTHERS]
    for path in shared:
        yield problem(DIRECTORY, f"{path} can be read by other users", f"Run `chmod 600 {path}`; make its secret anew.")
    if not shared:
        yield ok(DIRECTORY, "its secrets are readable by their owner alone")
    secret = directory / "secret"
    try:
        secret.read_text("utf-8")
    except FileNotFoundError:
        pass
    except (OSError, UnicodeDecodeError):
        yield problem(DIRECTORY, f"{secret} cannot be read", "Restore it from a backup: what it sealed needs it.")
    try:
        operator_key(directory)
    except CommandError as error:
        yield problem(DIRECTORY, str(error), "Start Loom once; it makes the key where it is missing.")


def _ports() -> Iterator[Finding]:
    if not _free(ports.DEFAULT_HTTP_PORT):
        yield warning(
            PORTS,
            f"port {ports.DEFAULT_HTTP_PORT}, which `loom up` listens on, is taken",
            "Stop what listens there, or start with --port.",
        )
    taken = [service.default_port for service in Service if not _free(service.default_port)]
    if taken:
        yield warning(
            PORTS,
            f"taken of the gRPC ports: {', '.join(map(str, taken))}",
            "`loom up` takes free ones instead, and says which in run.json.",
        )
    if not taken and _free(ports.DEFAULT_HTTP_PORT):
        yield ok(PORTS, "the HTTP port and every gRPC port are free")


def _free(port: int) -> bool:
    try:
        with socket.create_server((ports.LOOPBACK, port)):
            return True
    except OSError:
        return False
