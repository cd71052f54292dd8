"""A disk that is full: no write is acknowledged that was not stored, and the store says why."""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.clickhouse import endpoint_process

from loom_common.clickhouse import ClickHouseSettings, Table, open_clickhouse
from loom_common.errors import BackendUnavailable

NOTES = Table.of("notes", k="String", v="String")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 400 MiB of its own; where the test may not mount one there is none to fill."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400m", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a file system to fill needs the right to mount one")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 65_536)
        except OSError:
            return filler


async def test_a_write_that_a_full_disk_did_not_take_is_an_error_and_later_ones_are_stored(small_disk: Path) -> None:
    async with (
        endpoint_process(small_disk / "data") as endpoint,
        open_clickhouse(endpoint.url, database="d", settings=ClickHouseSettings()) as ch,
    ):
        await ch.command("CREATE TABLE IF NOT EXISTS notes (k String, v String) ENGINE = MergeTree ORDER BY k")
        await ch.insert(NOTES, [("before", "v")])
        filler = await asyncio.to_thread(fill, small_disk)
        with pytest.raises(BackendUnavailable):
            await ch.insert(NOTES, [("lost", "v")])
        filler.unlink()
        await ch.insert(NOTES, [("after", "v")])
        rows = (await ch.query("SELECT k FROM notes ORDER BY k")).rows
    assert rows == [("after",), ("before",)]
