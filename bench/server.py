"""A Loom of its own for one benchmark: a fresh data directory, loopback ports, and the shipped defaults."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

WORK: Final = Path(__file__).parent / "work"
START_TIMEOUT_S: Final = 120.0
_LOOM: Final = Path(sys.executable).parent / "loom"


@dataclass(frozen=True)
class RunningLoom:
    """A Loom that answers."""

    http_url: str
    token: str
    pid: int
    data_dir: Path

    def rss_bytes(self) -> int:
        """Returns the memory that the process and its children hold."""
        root = psutil.Process(self.pid)
        return sum(process.memory_info().rss for process in [root, *root.children(recursive=True)])

    def model_folder(self) -> Path:
        """Returns a copy of the embedding model's files that outlives this Loom."""
        kept = WORK / "model"
        if not kept.exists():
            # Set-up lays the files out beside the environment; a start without it, in the data directory.
            places = (Path(sys.prefix) / "share", self.data_dir / "models")
            found = [file for place in places for file in sorted(place.rglob("model.onnx"))]
            if not found:
                sys.exit("bench: the files of the embedding model were not found; run `make setup` first")
            shutil.copytree(found[0].parent, kept)
        return kept

    def disk_bytes(self) -> int:
        """Returns the size of the data directory."""
        return sum(path.stat().st_size for path in self.data_dir.rglob("*") if path.is_file())


@contextmanager
def loom() -> Iterator[RunningLoom]:
    """Starts `loom up` on a fresh data directory and stops it afterwards."""
    with tempfile.TemporaryDirectory(prefix="loom-bench-", ignore_cleanup_errors=True) as folder:
        data_dir = Path(folder)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LOOM_")}
        # A benchmark sends as fast as it can; the limits of a shared deployment are not what it measures.
        environment |= {f"LOOM_RATE_LIMIT_{name}_PER_S": "100000" for name in ("DEFAULT", "WRITE", "SEARCH")}
        with (data_dir / "loom.log").open("w") as log:
            process = subprocess.Popen(
                [_LOOM, "up", "--data-dir", folder, "--port", "0"], env=environment, stdout=log, stderr=log
            )
            try:
                yield _wait(process, data_dir)
            finally:
                process.send_signal(signal.SIGINT)
                process.wait(60)


def _wait(process: "subprocess.Popen[bytes]", data_dir: Path) -> RunningLoom:
    until = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < until and process.poll() is None:
        try:
            run = json.loads((data_dir / "run.json").read_text())
        except FileNotFoundError:
            time.sleep(0.1)
            continue
        return RunningLoom(run["http_url"], run["token"], run["pid"], data_dir)
    sys.exit("bench: Loom did not start:\n" + (data_dir / "loom.log").read_text()[-4000:])
