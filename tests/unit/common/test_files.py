"""Files that are written whole or not at all."""

import os
import stat
from pathlib import Path

import pytest

from loom_common.files import write_whole


def test_a_file_is_replaced_and_readable_by_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("old")
    write_whole(path, "new é")
    assert path.read_text("utf-8") == "new é"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_mode_is_given_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_whole(tmp_path / "public", "x", 0o644)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "public").stat().st_mode) == 0o644


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "a lone \ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_file_and_directory_are_on_disk_before_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    real = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda handle: (synced.append(stat.S_ISDIR(os.fstat(handle).st_mode)), real(handle))
    )
    write_whole(tmp_path / "secret", "x")
    assert synced == [False, True]
