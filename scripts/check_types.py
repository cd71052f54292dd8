"""Runs mypy in strict mode over every package, the tests' support and the scripts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
# Packages lie in several roots; naming them all lets mypy find each by its import name.
ROOTS = [
    "protos/gen",
    "protos",
    *[f"services/{name}" for name in ("common", "embedding", "llm", "memory", "insights", "assistant")],
    "gateway",
    "cli",
    "sdk/python",
    "tests",
]
PACKAGES = [
    "loom_protos",
    "loom_common",
    "loom_embedding",
    "loom_llm",
    "loom_memory",
    "loom_insights",
    "loom_assistant",
    "loom_gateway",
    "loom_cli",
    "loom_client",
    "support",
]


def main() -> int:
    """Returns mypy's exit code."""
    environment = {**os.environ, "MYPYPATH": os.pathsep.join(str(ROOT / root) for root in ROOTS)}
    named = [argument for package in PACKAGES for argument in ("-p", package)]
    return subprocess.run([sys.executable, "-m", "mypy", *named], cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
