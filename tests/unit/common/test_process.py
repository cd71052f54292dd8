"""A service as a process of its own."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from loom_common.clickhouse import embedded_directory
from loom_common.process import embedded_url

SCRIPT = textwrap.dedent(
    """
    from contextlib import asynccontextmanager
    from loom_common.process import run
    from loom_common.settings import CommonSettings

    @asynccontextmanager
    async def open_service(settings, ch):
        print("started", flush=True)
        yield None
        print("closed", flush=True)

    run(open_service, CommonSettings)
    """
)


def start(data_dir: Path, **variables: str) -> "subprocess.Popen[str]":
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOOM_")}
    # The search path of this very run, whether packages are installed or not.
    environment = {**kept, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "LOOM_DATA_DIR": str(data_dir)}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        env={**environment, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    process = start(tmp_path)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "started\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out) == (0, "closed\n"), err
    assert "Traceback" not in err


def test_a_setting_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    process = start(tmp_path, LOOM_DRAIN_S="soon")
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out) == (1, "")
    assert "LOOM_DRAIN_S" in err
    assert err.count("\n") == 1


def test_storage_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    process = start(tmp_path, LOOM_CLICKHOUSE_URL="mysql://somewhere")
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out) == (1, "")
    assert "LOOM_CLICKHOUSE_URL" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("name", ["plain", "with space", "a#b", "a?b", "50%41"])
def test_a_data_directory_of_any_name_is_the_one_that_its_url_names(tmp_path: Path, name: str) -> None:
    assert embedded_directory(embedded_url(tmp_path / name)) == tmp_path / name
