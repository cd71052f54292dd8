"""Files that are written whole or not at all."""

import os
import tempfile
from pathlib import Path
from typing import Final

PRIVATE: Final = 0o600
"""Readable by its owner alone."""


def write_whole(path: Path, text: str, mode: int = PRIVATE) -> None:
    """Writes a file that outlives a crash: a reader sees the old content or the new one, never half of either.

    Args:
        path: File to write, replaced where it is there.
        text: Its content.
        mode: Its permissions.

    Raises:
        OSError: The directory cannot be written.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), mode)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    """Makes the new name last: without it a power cut may leave the old one."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
