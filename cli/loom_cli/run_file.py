"""`run.json`: where a running Loom answers and with which token, for scripts that should not read the banner."""

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pydantic import TypeAdapter

from loom_cli.console import CommandError
from loom_common.files import write_whole

NAME: Final = "run.json"
_CONNECT_TIMEOUT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class RunFile:
    """What `run.json` holds."""

    pid: int
    """Process that `loom up` runs in."""
    http_url: str
    """Address of the gateway."""
    mcp_url: str
    """Address for MCP clients."""
    grpc: Mapping[str, str]
    """gRPC address by service."""
    token: str = field(repr=False)
    """Writer token for `org` and `namespace`."""
    org: str
    namespace: str

    def write(self, data_dir: Path) -> None:
        """Writes the file, readable by its owner alone; a reader sees the old one or the new one, never half of it."""
        write_whole(data_dir / NAME, json.dumps(asdict(self), indent=2))


_FILE: Final = TypeAdapter(RunFile)


def read(data_dir: Path) -> RunFile | None:
    """Returns what a running Loom wrote, or None where none runs; a file that a killed one left counts as none.

    Raises:
        CommandError: The file cannot be read.
    """
    path = data_dir / NAME
    try:
        found = _FILE.validate_json(path.read_bytes(), strict=True)
        return found if _is_running(found.pid) else None
    except FileNotFoundError:
        return None
    except (OSError, OverflowError, ValueError, TypeError) as error:
        raise CommandError(
            f"{path} cannot be read ({type(error).__name__}); stop Loom, remove it and start again"
        ) from error


def remove(data_dir: Path) -> None:
    """Removes the file; a missing one is no error."""
    (data_dir / NAME).unlink(missing_ok=True)


def running(data_dir: Path) -> RunFile:
    """Returns what the running Loom wrote.

    Raises:
        CommandError: None runs on this data directory.
    """
    found = read(data_dir)
    if found is None:
        raise CommandError(f"no Loom runs on {data_dir}; start one with `loom up`")
    return found


def answers(run: RunFile) -> bool:
    """Returns whether another process answers where the file says.

    The process alone says little: after a kill its number may be another program's, and in a container every start has
    the same.
    """
    if run.pid == os.getpid():
        return False
    address = urlsplit(run.http_url)
    try:
        with socket.create_connection((address.hostname, address.port), _CONNECT_TIMEOUT_S):
            return True
    except (OSError, ValueError):
        return False


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
