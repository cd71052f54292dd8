"""A whole Loom as a user starts it: `loom up` in a process of its own, on a fresh data directory."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

LOOM: Final = Path(sys.executable).parent / "loom"
GRPCURL: Final = Path(sys.executable).parent / "grpcurl"
# A busy machine starts slowly; a start that hangs must still end the test.
START_TIMEOUT_S: Final = 90.0
STOP_TIMEOUT_S: Final = 45.0
_POLL_S: Final = 0.05


@dataclass
class UpProcess:
    """A running `loom up`."""

    process: "subprocess.Popen[bytes]"
    data_dir: Path
    printed: Path
    """What it printed for people and programs: the banner."""
    log: Path
    """What it logged."""
    run: Mapping[str, Any]

    @property
    def http_url(self) -> str:
        """Address of the gateway."""
        return str(self.run["http_url"])

    @property
    def token(self) -> str:
        """The writer token that the start printed."""
        return str(self.run["token"])

    def address(self, service: str) -> str:
        """Returns a service's gRPC address."""
        return str(self.run["grpc"][service])

    def post(self, op: str, body: Mapping[str, Any] | None = None, *, token: str | None = None) -> httpx.Response:
        """Calls an operation over HTTP."""
        headers = {"Authorization": f"Bearer {token or self.token}"}
        return httpx.post(f"{self.http_url}/v1/{op}", json=body or {}, headers=headers, timeout=60)

    def call(self, op: str, body: Mapping[str, Any] | None = None, *, token: str | None = None) -> dict[str, Any]:
        """Calls an operation over HTTP and returns its answer, which must be a success."""
        answer = self.post(op, body, token=token)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def stop(self, number: int = signal.SIGINT) -> int:
        """Sends a signal and returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(STOP_TIMEOUT_S)


def environment(**variables: str) -> dict[str, str]:
    """Returns this process's environment without any setting of Loom's but those given."""
    return {name: value for name, value in os.environ.items() if not name.startswith("LOOM_")} | variables


def launch(data_dir: Path, *options: str, env: Mapping[str, str] | None = None) -> "subprocess.Popen[bytes]":
    """Starts `loom up` and does not wait for it; it prints to `<data_dir>.out` and logs to `<data_dir>.log`."""
    with data_dir.with_suffix(".out").open("ab") as out, data_dir.with_suffix(".log").open("ab") as log:
        return subprocess.Popen(
            [LOOM, "up", "--data-dir", data_dir, "--port", "0", *options],
            env=env or environment(),
            stdout=out,
            stderr=log,
            start_new_session=True,
        )


def wait_until_up(process: "subprocess.Popen[bytes]", data_dir: Path) -> UpProcess:
    """Waits until a start has written `run.json` and said so."""
    printed, log = data_dir.with_suffix(".out"), data_dir.with_suffix(".log")
    until = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < until:
        assert process.poll() is None, f"loom up ended with {process.returncode}:\n{log.read_text()[-4000:]}"
        run = read_run(data_dir)
        if run is not None and run["pid"] == process.pid and run["token"] in printed.read_text():
            return UpProcess(process, data_dir, printed, log, run)
        time.sleep(_POLL_S)
    end(process)
    raise AssertionError(f"loom up did not start:\n{log.read_text()[-4000:]}")


def read_run(data_dir: Path) -> dict[str, Any] | None:
    """Returns `run.json`, or None where there is none."""
    try:
        found: dict[str, Any] = json.loads((data_dir / "run.json").read_text())
    except FileNotFoundError:
        return None
    return found


@contextmanager
def loom_up(data_dir: Path, *options: str, env: Mapping[str, str] | None = None) -> Iterator[UpProcess]:
    """Runs `loom up` for the block; whatever happens, nothing of it is left running."""
    process = launch(data_dir, *options, env=env)
    try:
        yield wait_until_up(process, data_dir)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                end(process)
                raise


def end(process: "subprocess.Popen[bytes]") -> None:
    """Kills a start and every process that it made."""
    made = children(process.pid)
    process.kill()
    process.wait()
    for pid in made.values():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def children(pid: int) -> dict[str, int]:
    """Returns the running child processes of a process, by the last word of the module that each runs."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            words = (entry / "cmdline").read_bytes().decode().split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(parent) == pid and state != "Z":
            named = next((word for word in reversed(words) if word.startswith("loom_")), words[0])
            found[named.removeprefix("loom_").rpartition(".")[2]] = int(entry.name)
    return found


def is_running(pid: int) -> bool:
    """Returns whether a process runs; one that ended and was not waited for does not."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def eventually(check: Callable[[], bool], within_s: float, what: str) -> float:
    """Waits until `check` holds and returns the seconds that it took.

    Raises:
        AssertionError: It did not hold in time.
    """
    began = time.monotonic()
    while not check():
        assert time.monotonic() - began < within_s, f"not within {within_s:g} s: {what}"
        time.sleep(_POLL_S)
    return time.monotonic() - began


def run_loom(*arguments: "str | Path", env: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    """Runs a `loom` command to its end."""
    return subprocess.run([LOOM, *arguments], env=env or environment(), capture_output=True, text=True, timeout=90)


def grpcurl(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs grpcurl, as an operator would."""
    command: Sequence[str | Path] = [GRPCURL, "-plaintext", "-max-time", "30", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)
