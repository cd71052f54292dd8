"""A bar of progress on standard error, where that is a terminal."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from loom_cli.console import ERR


class Bar:
    """One bar."""

    def __init__(self, progress: Any, task: Any) -> None:  # rich's own, which is loaded late
        self._progress = progress
        self._task = task

    def advance(self, by: int) -> None:
        """Moves it on."""
        self._progress.advance(self._task, by)

    def to(self, place: int) -> None:
        """Moves it to a place."""
        self._progress.update(self._task, completed=place)


@contextmanager
def bar(what: str, total: int | None, *, in_bytes: bool = True) -> Iterator[Bar]:
    """Shows a bar while entered.

    Args:
        what: What is done.
        total: Where it ends; None where that is not known.
        in_bytes: Whether `total` is a number of bytes, and not of things.
    """
    # Here: `loom --help` need not wait for it.
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    counted = DownloadColumn() if in_bytes and total is not None else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), counted, TimeElapsedColumn())
    with Progress(*columns, console=ERR, transient=True, disable=not ERR.is_terminal) as progress:
        yield Bar(progress, progress.add_task(what, total=total))
