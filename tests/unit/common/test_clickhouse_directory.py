import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from loom_common.clickhouse import DataDirectoryFull, DataDirectoryHeld, DataDirectoryUnusable
from loom_common.clickhouse.directory import RUNNING_FREE_BYTES, DataDirectory
from loom_common.errors import BackendUnavailable


@pytest.fixture
def held(tmp_path: Path) -> Iterator[DataDirectory]:
    directory = DataDirectory(tmp_path / "new" / "data", min_free_bytes=0)
    directory.hold()
    yield directory
    directory.release()


def test_a_new_directory_is_made_for_its_owner_alone(held: DataDirectory) -> None:
    assert held.engine_path == held.path / "clickhouse"
    assert held.engine_path.stat().st_mode & 0o777 == 0o700
    assert (held.path / "lock").stat().st_mode & 0o777 == 0o600
    held.check()


def test_a_second_opener_is_told_process_and_address(held: DataDirectory) -> None:
    held.announce("http://127.0.0.1:8080")
    with pytest.raises(DataDirectoryHeld) as caught:
        DataDirectory(held.path, min_free_bytes=0).hold()
    assert (caught.value.pid, caught.value.url) == (os.getpid(), "http://127.0.0.1:8080")
    assert "\n" not in str(caught.value)


def test_a_lock_file_that_cannot_be_read_still_holds(held: DataDirectory) -> None:
    (held.path / "lock").write_text("{")
    with pytest.raises(DataDirectoryHeld) as caught:
        DataDirectory(held.path, min_free_bytes=0).hold()
    assert caught.value.pid is None


def test_a_released_directory_can_be_held_again_and_names_nobody(held: DataDirectory) -> None:
    held.release()
    assert (held.path / "lock").read_text() == ""
    again = DataDirectory(held.path, min_free_bytes=0)
    again.hold()
    assert json.loads((held.path / "lock").read_text())["pid"] == os.getpid()
    again.release()


def test_a_path_that_is_a_file_is_unusable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataDirectoryUnusable):
        DataDirectory(tmp_path / "file", min_free_bytes=0).hold()


def test_a_place_where_nothing_can_be_made_is_unusable() -> None:
    # The kernel's own file system refuses everyone; a mode would not stop root.
    with pytest.raises(DataDirectoryUnusable):
        DataDirectory(Path("/proc/self/loom"), min_free_bytes=0).hold()


def test_too_little_space_is_said_before_the_engine_opens_and_lets_go_of_the_lock(tmp_path: Path) -> None:
    with pytest.raises(DataDirectoryFull):
        DataDirectory(tmp_path, min_free_bytes=1 << 60).hold()
    directory = DataDirectory(tmp_path, min_free_bytes=0)
    directory.hold()
    directory.release()


def test_a_removed_directory_is_noticed(held: DataDirectory) -> None:
    shutil.rmtree(held.engine_path)
    with pytest.raises(BackendUnavailable) as caught:
        held.check()
    assert str(held.path) not in str(caught.value)


def test_a_replaced_directory_is_noticed(held: DataDirectory) -> None:
    held.engine_path.rename(held.path / "elsewhere")
    held.engine_path.mkdir()
    with pytest.raises(BackendUnavailable):
        held.check()


def test_a_disk_that_fills_up_while_loom_runs_is_noticed(held: DataDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    free = RUNNING_FREE_BYTES
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=free))
    held.check_space()
    free -= 1
    with pytest.raises(BackendUnavailable) as caught:
        held.check_space()
    assert caught.value.detail == {"free_bytes": free, "needed_bytes": RUNNING_FREE_BYTES}
    assert str(held.path) not in str(caught.value)
