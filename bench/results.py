"""Where results are kept: a committed JSON file per benchmark, the machine and the versions beside the figures."""

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent / "results"
ROOT: Final = Path(__file__).parent.parent


def save(name: str, figures: dict[str, Any]) -> None:
    """Writes the figures of one benchmark."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps({"run": _run(), **figures}, indent=1) + "\n", "utf-8")


def load(name: str) -> dict[str, Any] | None:
    """Returns the figures of one benchmark, or None where it was never run."""
    path = FOLDER / f"{name}.json"
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def _run() -> dict[str, Any]:
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": commit.stdout.strip(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {memory_gib} GiB",
        "python": platform.python_version(),
        "loom": version("loom-cli"),
        "engine": f"chdb-core {version('chdb-core')}",
    }
