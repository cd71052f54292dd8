"""A Loom of its own for one benchmark: a fresh data directory, loopback ports, and the shipped defaults."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

WORK: Final = Path(__file__).parent / "work"
START_TIMEOUT_S: Final = 120.0
_CALIBRATION_S: Final = 180.0
_LOOM: Final = Path(sys.executable).parent / "loom"


@dataclass(frozen=True)
class RunningLoom:
    """A Loom that answers."""

    http_url: str
    token: str
    pid: int
    data_dir: Path
    grpc: Mapping[str, str]
    """Address of each service."""

    def rss_bytes(self) -> int:
        """Returns the memory that the process and its children hold."""
        root = psutil.Process(self.pid)
        return sum(process.memory_info().rss for process in [root, *root.children(recursive=True)])

    def model_folder(self) -> Path:
        """Returns a copy of the embedding model's files that outlives this Loom."""
        # A start without set-up lays them out in the data directory.
        return model_folder(self.data_dir / "models")

    def disk_bytes(self) -> int:
        """Returns the size of the data directory."""
        size = 0
        for folder, _, names in os.walk(self.data_dir):
            for name in names:
                # The engine removes files meanwhile.
                with suppress(FileNotFoundError):
                    size += os.stat(os.path.join(folder, name)).st_size
        return size


def model_folder(*beside: Path) -> Path:
    """Returns a copy of the embedding model's files, from where set-up lays them out or from one of `beside`."""
    kept = WORK / "model"
    if not kept.exists():
        places = (Path(sys.prefix) / "share", *beside)
        found = [file for place in places for file in sorted(place.rglob("model.onnx"))]
        if not found:
            sys.exit("bench: the files of the embedding model were not found; run `make setup` first")
        shutil.copytree(found[0].parent, kept)
    return kept


@contextmanager
def loom(
    kept: Path | None = None, *, processes: bool = False, variables: Mapping[str, str] | None = None
) -> Iterator[RunningLoom]:
    """Starts `loom up` and stops it afterwards, on the data directory `kept`, else on one that is removed.

    Args:
        kept: Data directory that outlives the run.
        processes: Whether each service has a process of its own.
        variables: Settings beside the defaults.
    """
    with ExitStack() as stack:
        if kept is None:
            fresh = tempfile.TemporaryDirectory(prefix="loom-bench-", ignore_cleanup_errors=True)
            data_dir = Path(stack.enter_context(fresh))
        else:
            data_dir = kept
            data_dir.mkdir(parents=True, exist_ok=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LOOM_")}
        # A benchmark sends as fast as it can; the limits of a shared deployment are not what it measures.
        environment |= {f"LOOM_RATE_LIMIT_{name}_PER_S": "100000" for name in ("DEFAULT", "WRITE", "SEARCH")}
        environment |= variables or {}
        with (data_dir / "loom.log").open("w") as log:
            command = [
                str(_LOOM),
                "up",
                "--data-dir",
                str(data_dir),
                "--port",
                "0",
                *(["--processes"] if processes else []),
            ]
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            try:
                yield _wait(process, data_dir)
            finally:
                process.send_signal(signal.SIGINT)
                process.wait(60)


def until_calibrated(http_url: str) -> None:
    """Waits until the model's thresholds are measured, which a first start does on every core."""
    until = time.monotonic() + _CALIBRATION_S
    while time.monotonic() < until:
        with urllib.request.urlopen(f"{http_url}/v1/health", timeout=30) as answer:
            if "calibration_hash" in json.loads(answer.read()).get("adaptive_thresholds", {}):
                return
        time.sleep(0.5)
    sys.exit("bench: the embedding model was not calibrated in time")


def _wait(process: "subprocess.Popen[bytes]", data_dir: Path) -> RunningLoom:
    until = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < until and process.poll() is None:
        try:
            run = json.loads((data_dir / "run.json").read_text())
        except FileNotFoundError:
            run = {}
        if run.get("pid") != process.pid:  # a kept directory may hold that of a Loom which was killed
            time.sleep(0.1)
            continue
        return RunningLoom(run["http_url"], run["token"], run["pid"], data_dir, run["grpc"])
    sys.exit("bench: Loom did not start:\n" + (data_dir / "loom.log").read_text()[-4000:])
