"""Checks the contract with buf: style always, breaking changes against the last release where there is one.

Usage: python scripts/lint_contract.py [--against REV]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
CONFIG = ROOT / "protos" / "buf.yaml"
DESCRIPTORS = ROOT / "protos" / "gen" / "loom_protos" / "loom.binpb"
BUF = Path(sys.executable).parent / "buf"


def git(*arguments: str) -> str:
    """Returns what git prints, or nothing where it fails."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def baseline() -> str:
    """Returns the revision to compare with: the last release tag, else where `main` left this branch, else nothing."""
    tag = git("describe", "--tags", "--abbrev=0", "--match", "v*")
    return tag or git("merge-base", "HEAD", "origin/main")


def has_contract(revision: str) -> bool:
    """Tells whether a revision holds the contract in today's layout."""
    return bool(git("ls-tree", "--name-only", revision, "protos/generate.py"))


def descriptors_of(revision: str, folder: Path) -> Path:
    """Builds the descriptor set of another revision in `folder` with that revision's own generator."""
    archive = subprocess.run(["git", "archive", revision, "protos"], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    subprocess.run([sys.executable, str(folder / "protos" / "generate.py")], check=True, stdout=subprocess.DEVNULL)
    return folder / "protos" / "gen" / "loom_protos" / "loom.binpb"


def main() -> int:
    """Runs both checks; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--against", default=None, help="revision to compare with; default: the last release, else main"
    )
    against = parser.parse_args().against or baseline()
    failed = subprocess.run([BUF, "lint", DESCRIPTORS, "--config", CONFIG], check=False).returncode
    if not against or not has_contract(against):
        print("contract: no release and no main to compare with; breaking changes not checked")
        return failed
    with tempfile.TemporaryDirectory() as folder:
        older = descriptors_of(against, Path(folder))
        command = [BUF, "breaking", DESCRIPTORS, "--against", older, "--config", CONFIG]
        failed |= subprocess.run(command, check=False).returncode
    return failed


if __name__ == "__main__":
    sys.exit(main())
