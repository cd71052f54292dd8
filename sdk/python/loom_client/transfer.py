"""Memories as lines of JSON: everything out of a namespace, and back in.

A line is one memory with its times, versions and vectors, as far as asked for. Lines need not be understood to be kept:
write them to a file, and the file is a backup.
"""

import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from loom_client.errors import BackendUnavailable, LoomError

# Lines and bytes of one call of an import. Source: chosen; well under what a server takes at once, and each call's
# memories are stored when it answers.
BATCH_LINES: Final = 2_000
BATCH_BYTES: Final = 16 * 1024 * 1024
MAX_LINE_BYTES: Final = 4 * 1024 * 1024
_SHOWN_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class ExportedLine:
    """One memory of an export.

    Attributes:
        line: Its line of JSON, without the end.
        cursor: Goes on behind this line and those before, when given to `export`; empty until the next place that an
            export can go on from.
    """

    line: bytes
    cursor: str = ""


@dataclass(frozen=True, slots=True)
class RefusedLine:
    """One line that an import did not take.

    Attributes:
        line: Its number, from 1.
        key: Key of its memory; empty when it has none.
        reason: Reason from the server's table of errors, such as `INVALID_ARGUMENT`, or of a rule of the namespace.
        message: What is wrong with it.
    """

    line: int
    key: str
    reason: str
    message: str


@dataclass(slots=True)
class Imported:
    """What an import did so far.

    Attributes:
        lines: Lines that were sent.
        stored: Memories that were stored, or would be in a dry run.
        unchanged: Memories that were there already, had expired, or were left as they are.
        refused: Lines that were not taken.
    """

    lines: int = 0
    stored: int = 0
    unchanged: int = 0
    refused: list[RefusedLine] = field(default_factory=list)


class LineTransport(Protocol):
    """Sends and takes lines; see `loom_client._transport.SyncTransport`."""

    def lines_out(self, op: str, body: Mapping[str, Any]) -> Iterator[bytes]:
        """Yields the lines that an operation answers."""
        ...

    def lines_in(self, op: str, asked: Mapping[str, str], lines: list[bytes]) -> list[bytes]:
        """Sends lines to an operation and returns those of its answer."""
        ...


class AsyncLineTransport(Protocol):
    """Sends and takes lines; for asyncio."""

    def lines_out(self, op: str, body: Mapping[str, Any]) -> AsyncIterator[bytes]:
        """Yields the lines that an operation answers."""
        ...

    async def lines_in(self, op: str, asked: Mapping[str, str], lines: list[bytes]) -> list[bytes]:
        """Sends lines to an operation and returns those of its answer."""
        ...


def export_lines(transport: LineTransport, body: Mapping[str, Any]) -> Iterator[ExportedLine]:
    """Yields the lines of an export, to its end.

    Raises:
        LoomError: The call was refused, failed, or was cut; go on with the last cursor.
    """
    reader = _ExportReader()
    for line in transport.lines_out("memory.export", body):
        yield from reader.read(line)
    reader.end()


async def export_lines_async(transport: AsyncLineTransport, body: Mapping[str, Any]) -> AsyncIterator[ExportedLine]:
    """Yields the lines of an export, to its end; see `export_lines`."""
    reader = _ExportReader()
    async for line in transport.lines_out("memory.export", body):
        for exported in reader.read(line):
            yield exported
    reader.end()


def import_lines(transport: LineTransport, lines: Iterable[bytes], asked: Mapping[str, str]) -> Iterator[Imported]:
    """Sends lines in calls of bounded size, and yields what was done after each; the same object each time.

    Raises:
        LoomError: A call was refused or failed. What was yielded before is stored; the same lines may be sent again.
    """
    done = Imported()
    for batch in _batches(lines):
        _note(done, transport.lines_in("memory.import", asked, batch), len(batch))
        yield done


async def import_lines_async(
    transport: AsyncLineTransport, lines: Iterable[bytes], asked: Mapping[str, str]
) -> AsyncIterator[Imported]:
    """Sends lines in calls of bounded size, and yields what was done after each; see `import_lines`."""
    done = Imported()
    for batch in _batches(lines):
        _note(done, await transport.lines_in("memory.import", asked, batch), len(batch))
        yield done


def objects(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yields each line as the object that it is.

    Raises:
        LoomError: A line tells an error.
    """
    for line in lines:
        told = json.loads(line)
        raise_for(told)
        yield told


async def objects_async(lines: AsyncIterator[bytes]) -> AsyncIterator[dict[str, Any]]:
    """Yields each line as the object that it is; see `objects`."""
    async for line in lines:
        told = json.loads(line)
        raise_for(told)
        yield told


def export_body(**fields: Any) -> dict[str, Any]:
    """Returns the request of an export; what is left at None is left out."""
    return {name: value for name, value in fields.items() if value is not None}


def import_query(*, namespace: str | None, dry_run: bool, skip_existing: bool) -> dict[str, str]:
    """Returns what an import is told beside its lines."""
    asked = {"namespace": namespace or "", "dry_run": "true" if dry_run else ""}
    asked["if_exists"] = "skip" if skip_existing else ""
    return {name: value for name, value in asked.items() if value}


class _ExportReader:
    """Tells memories from what stands between them."""

    def __init__(self) -> None:
        self._waiting: bytes | None = None
        self._finished = False

    def read(self, line: bytes) -> Iterator[ExportedLine]:
        if line.startswith((b'{"cursor"', b'{"finished"', b'{"error"')):
            told = json.loads(line)
            raise_for(told)
            self._finished = bool(told.get("finished"))
            if self._waiting is not None:
                yield ExportedLine(self._waiting, str(told.get("cursor", "")))
                self._waiting = None
            return
        if self._waiting is not None:
            yield ExportedLine(self._waiting)
        self._waiting = line

    def end(self) -> None:
        if not self._finished:
            raise BackendUnavailable("BACKEND_UNAVAILABLE", "the export was cut; go on with the last cursor")


def raise_for(told: Mapping[str, Any]) -> None:
    """Raises the error that a line tells, if it tells one."""
    error = told.get("error")
    if isinstance(error, Mapping):
        raise LoomError.from_body(error)


def _batches(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for whole in lines:
        # A server takes no longer line; what is left of it is no JSON, so that it is refused by its number.
        line = whole if len(whole) <= MAX_LINE_BYTES else whole[:_SHOWN_BYTES]
        if batch and (len(batch) == BATCH_LINES or size + len(line) > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += len(line)
    if batch:
        yield batch


def _note(done: Imported, answers: list[bytes], sent: int) -> None:
    before = done.lines
    failure: Mapping[str, Any] = {}
    for answer in answers:
        told = json.loads(answer)
        if "error" in told:
            failure = told
            continue
        done.stored += told["stored_count"]
        done.unchanged += told["unchanged_count"]
        done.refused += [
            RefusedLine(before + result["line"], result["key"], result["reason"], result["message"])
            for result in told["results"]
            if result["message"]
        ]
    raise_for(failure)
    done.lines += sent
