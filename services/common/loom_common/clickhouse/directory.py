"""Holds the data directory for one process, because the engine's own refusals say nothing and some never come.

The engine answers a second opener and a read-only directory with the same empty message, and it accepts inserts into
a directory that was deleted under it. So the directory is checked and locked here before the engine opens it, and its
identity is compared again whenever somebody asks whether the store is ready.
"""

import fcntl
import json
import os
import shutil
import tempfile
from pathlib import Path

from loom_common.errors import BackendUnavailable

ENGINE_DIRECTORY = "clickhouse"
LOCK_FILE = "lock"
# Source: chosen. Room for the parts that the largest inserts of a few seconds write and for the engine's own logs; with
# less, the next writes fail one by one, and readiness should say so before they do.
RUNNING_FREE_BYTES = 32 * 1024 * 1024


class StorageStartError(Exception):
    """The store cannot be opened; the message is one line for the operator who starts Loom."""


class DataDirectoryHeld(StorageStartError):
    """Another process has the data directory open."""

    def __init__(self, path: Path, pid: int | None, url: str | None) -> None:
        holder = f"process {pid}" if pid else "another process"
        where = f" (it answers at {url})" if url else ""
        super().__init__(f"the data directory {path} is in use by {holder}{where}; stop it or name another directory")
        self.pid = pid
        self.url = url


class DataDirectoryUnusable(StorageStartError):
    """The data directory cannot be made or written, or is not a directory."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"the data directory {path} cannot be used: {problem}")


class DataDirectoryFull(StorageStartError):
    """The file system of the data directory has too little free space."""

    def __init__(self, path: Path, free_bytes: int, needed_bytes: int) -> None:
        super().__init__(
            f"the data directory {path} has {free_bytes >> 20} MiB free and Loom needs {needed_bytes >> 20} MiB"
        )


class DataDirectory:
    """One data directory, held by this process from `hold` until `release`."""

    def __init__(self, path: Path, *, min_free_bytes: int) -> None:
        self.path = path
        self.engine_path = path / ENGINE_DIRECTORY
        self._min_free_bytes = min_free_bytes
        self._lock_fd: int | None = None
        self._identities: dict[Path, tuple[int, int]] = {}

    def hold(self) -> None:
        """Makes the directory where absent (0700), checks it and locks it for this process.

        Raises:
            DataDirectoryHeld: Another opener has it, in this process or another.
            DataDirectoryUnusable: It cannot be made or written.
            DataDirectoryFull: Less than the wanted space is free.
        """
        try:
            self.engine_path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock()
        except OSError as error:
            raise DataDirectoryUnusable(self.path, error.strerror or type(error).__name__) from None
        try:
            self._probe()
        except BaseException:
            self.release()
            raise
        self._identities = {path: _identity(path) for path in (self.path, self.engine_path)}

    def announce(self, url: str) -> None:
        """Writes into the lock file where this process answers, for the message that a second opener gets."""
        if self._lock_fd is None:
            raise RuntimeError("the data directory is not held")
        content = json.dumps({"pid": os.getpid(), "url": url}).encode()
        os.ftruncate(self._lock_fd, 0)
        os.pwrite(self._lock_fd, content, 0)

    def check(self) -> None:
        """Compares the directory with the one that was opened.

        Raises:
            BackendUnavailable: It was removed or replaced, so that writes would be lost.
        """
        for path, identity in self._identities.items():
            try:
                same = _identity(path) == identity
            except OSError:
                same = False
            if not same:
                raise BackendUnavailable("The database's directory was removed or replaced; restart Loom.")

    def check_space(self) -> None:
        """Looks whether the file system still has room for what is written while Loom runs.

        Raises:
            BackendUnavailable: Less than `RUNNING_FREE_BYTES` is free, or nothing can be told.
        """
        try:
            free_bytes = shutil.disk_usage(self.path).free
        except OSError:
            raise BackendUnavailable("The database's directory cannot be read.") from None
        if free_bytes < RUNNING_FREE_BYTES:
            raise BackendUnavailable(
                "The database's disk is nearly full; free some space.",
                detail={"free_bytes": free_bytes, "needed_bytes": RUNNING_FREE_BYTES},
            )

    def release(self) -> None:
        """Gives the directory up. Safe to call twice."""
        if self._lock_fd is None:
            return
        fd, self._lock_fd = self._lock_fd, None
        os.ftruncate(fd, 0)
        os.close(fd)  # closing drops the lock

    def _lock(self) -> None:
        fd = os.open(self.path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid, url = _read_holder(fd)
            os.close(fd)
            raise DataDirectoryHeld(self.path, pid, url) from None
        self._lock_fd = fd
        self.announce("")

    def _probe(self) -> None:
        for path in (self.path, self.engine_path):
            try:
                with tempfile.TemporaryFile(dir=path) as probe:
                    probe.write(b"\0" * 4096)
                    probe.flush()
                    os.fsync(probe.fileno())
            except OSError as error:
                raise DataDirectoryUnusable(self.path, error.strerror or type(error).__name__) from None
        free_bytes = shutil.disk_usage(self.path).free
        if free_bytes < self._min_free_bytes:
            raise DataDirectoryFull(self.path, free_bytes, self._min_free_bytes)


def _identity(path: Path) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _read_holder(fd: int) -> tuple[int | None, str | None]:
    try:
        holder = json.loads(os.pread(fd, 4096, 0))
        return int(holder["pid"]), str(holder["url"]) or None
    except (ValueError, KeyError, TypeError):
        return None, None
