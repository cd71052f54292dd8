"""`loom export` and `loom import`: every memory of a namespace into a file of lines, and back."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Final

import typer

from loom_cli import options
from loom_cli.console import ERR, OUT, CommandError, print_json
from loom_cli.importers.command import Order, import_file
from loom_cli.importers.converting import KINDS
from loom_cli.importers.sending import How
from loom_cli.progress import bar
from loom_cli.run_state import RunState

if TYPE_CHECKING:
    from loom_client import Imported, Loom

_INTERRUPTED: Final = 130
# Refused lines that are shown; `--json` shows all.
_SHOWN: Final = 20


class Stored(StrEnum):
    """What conversations become."""

    CONVERSATIONS = "conversations"
    MEMORIES = "memories"


File = Annotated[Path, typer.Argument(help="File of lines of JSON.", show_default=False)]


def export_memories(
    file: File,
    user: Annotated[str | None, typer.Option(help="Only this user's.")] = None,
    session: Annotated[str | None, typer.Option(help="Only this session's.")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="Only of this kind; may be given more than once.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only with this label; may be given more than once.")] = None,
    vectors: Annotated[bool, typer.Option(help="Write vectors, so that an import need not make them again.")] = True,
    versions: Annotated[bool, typer.Option(help="Write earlier versions.")] = True,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where an export to this file was stopped.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    namespace: options.Namespace = None,
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Writes every memory of a namespace to a file, as of one moment. The file appears under its name once it is whole.

    Until then it is FILE.part, and Ctrl-C or a broken connection loses nothing: `--resume` goes on from there.
    """
    part = file.with_name(f"{file.name}.part")
    state = RunState(file.with_name(f"{file.name}.resume"))
    if file.exists() and not force:
        raise CommandError(f"{file} is there already; give another name, or --force to write over it")
    asked: dict[str, Any] = {  # arguments of the client, and what a state file remembers
        "namespace": namespace,
        "user_id": user,
        "session_id": session,
        "kinds": kind or None,
        "tags": tag or None,
        "with_vectors": vectors,
        "with_versions": versions,
    }
    held = state.read(asked) if resume else {}
    if resume and not (held and part.exists()):
        raise CommandError(f"nothing to go on with: {part} or {state.path} is not there; leave --resume out")
    if resume and part.stat().st_size < int(held.get("bytes", 0)):
        raise CommandError(f"{part} is shorter than it was; leave --resume out to begin again")
    count = int(held.get("count", 0))
    with _client(data_dir) as loom, _written(part, int(held.get("bytes", 0))) as out, bar("exporting", None) as shown:
        for exported in loom.export(**asked, cursor=held.get("cursor")):
            out.write(exported.line + b"\n")
            count += 1
            shown.advance(1)
            if exported.cursor:
                out.flush()
                state.write(asked, {"cursor": exported.cursor, "bytes": out.tell(), "count": count})
        out.flush()
        os.fsync(out.fileno())
    part.replace(file)
    state.remove()
    if as_json:
        print_json({"file": str(file), "count": count})
    else:
        OUT.print(f"{count} memories written to {file}", markup=False)


def import_memories(
    kind_or_file: Annotated[
        str,
        typer.Argument(
            metavar="[KIND] FILE",
            help=f"The file, behind what wrote it: {', '.join(KINDS)}; without that, it is of `loom export`.",
            show_default=False,
        ),
    ],
    named: Annotated[Path | None, typer.Argument(metavar="", show_default=False, hidden=True)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check every line and store nothing.")] = False,
    skip_existing: Annotated[
        bool,
        typer.Option("--skip-existing", help="Leave a key that is there with other content as it is."),
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where an import of this file was stopped.")] = False,
    stored_as: Annotated[
        Stored,
        typer.Option("--as", help="What the conversations of a file of another system become."),
    ] = Stored.CONVERSATIONS,
    user: Annotated[
        str, typer.Option(help="User of what names none; for a file of another system.", show_default=False)
    ] = "",
    namespace: options.Namespace = None,
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Stores the memories of a file that `loom export` wrote, or what a file of another system holds.

    The same file may be imported again: what is there already makes no new version. Ends with 0 when every line was
    taken, and with 1 when some were refused; those are listed, and the others are stored.
    """
    if named is not None:
        how = How(namespace, user, dry_run, skip_existing)
        as_memories = stored_as is Stored.MEMORIES
        import_file(Order(kind_or_file, named, how, as_memories, resume, data_dir, as_json))
        return
    if kind_or_file in KINDS and not Path(kind_or_file).is_file():
        raise CommandError(f"name the file, too: loom import {kind_or_file} FILE")
    if user or stored_as is not Stored.CONVERSATIONS:
        raise CommandError("--user and --as are for files of other systems: loom import KIND FILE")
    _import_lines(Path(kind_or_file), dry_run, skip_existing, resume, namespace, data_dir, as_json)


def _import_lines(
    file: Path,
    dry_run: bool,
    skip_existing: bool,
    resume: bool,
    namespace: str | None,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    if not file.is_file():
        raise CommandError(f"there is no file {file}")
    state = RunState(file.with_name(f"{file.name}.resume"))
    asked = {"namespace": namespace, "dry_run": dry_run, "skip_existing": skip_existing, "size": file.stat().st_size}
    held = state.read(asked) if resume else {}
    if resume and not held:
        raise CommandError(f"nothing to go on with: {state.path} is not there, or of another file; leave --resume out")
    source = _Source(file, int(held.get("bytes", 0)), int(held.get("lines", 0)))
    outcome: Imported | None = None
    interrupted = False
    with _client(data_dir) as loom, bar("importing", file.stat().st_size) as shown:
        shown.advance(source.read_bytes)
        try:
            sent = loom.import_(source.lines(), namespace=namespace, dry_run=dry_run, skip_existing=skip_existing)
            for outcome in sent:
                shown.to(source.bytes_of(outcome.lines))
                if not dry_run:
                    state.write(asked, {"bytes": source.bytes_of(outcome.lines), "lines": source.first + outcome.lines})
        except KeyboardInterrupt:
            interrupted = True
    if not interrupted:
        state.remove()
    _report(outcome, source.first, dry_run=dry_run, as_json=as_json)
    if interrupted:
        ERR.print("stopped; what was answered is stored, and --resume goes on", style="yellow", markup=False)
        raise typer.Exit(_INTERRUPTED)
    if outcome is not None and outcome.refused:
        raise typer.Exit(1)


class _Source:
    """The lines of a file, and how far into it the first so many of them reach."""

    def __init__(self, file: Path, skipped_bytes: int, skipped_lines: int) -> None:
        self._file = file
        self.read_bytes = skipped_bytes
        self.first = skipped_lines
        self._ends: dict[int, int] = {}

    def lines(self) -> Iterator[bytes]:
        """Yields the lines behind what was skipped."""
        place = self.read_bytes
        with self._file.open("rb") as source:
            source.seek(place)
            for number, line in enumerate(source, 1):
                place += len(line)
                self._ends[number] = place
                yield line.removesuffix(b"\n")

    def bytes_of(self, lines: int) -> int:
        """Returns where the first `lines` of them end; each may be asked for once, in order."""
        end = self._ends.get(lines, self.read_bytes)
        self._ends = {number: place for number, place in self._ends.items() if number > lines}
        return end


@contextmanager
def _written(part: Path, kept: int) -> Iterator[IO[bytes]]:
    """Opens the file that grows, cut to what is known to be whole; what memories hold is for nobody else's eyes."""
    with os.fdopen(os.open(part, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as out:
        out.truncate(kept)
        out.seek(kept)
        yield out


def _client(data_dir: Path | None) -> "Loom":
    from loom_cli.client import client  # here: `loom --help` need not wait for it

    return client(options.directory(data_dir))


def _report(outcome: "Imported | None", first: int, *, dry_run: bool, as_json: bool) -> None:
    from loom_common.redaction import escape  # here: `loom --help` need not wait for it

    stored = outcome.stored if outcome else 0
    unchanged = outcome.unchanged if outcome else 0
    refused = outcome.refused if outcome else []
    if as_json:
        told = [
            {"line": first + one.line, "key": one.key, "reason": one.reason, "message": one.message} for one in refused
        ]
        print_json({"stored": stored, "unchanged": unchanged, "refused": told, "dry_run": dry_run})
        return
    said = "would be stored" if dry_run else "stored"
    OUT.print(f"{stored} {said}, {unchanged} unchanged, {len(refused)} refused", markup=False)
    for one in refused[:_SHOWN]:
        # Whoever wrote the file chose its keys: they must not steer a terminal.
        OUT.print(f"line {first + one.line}: {escape(one.reason)}: {escape(one.message)}", markup=False)
    if len(refused) > _SHOWN:
        OUT.print(f"... and {len(refused) - _SHOWN} more; --json lists all", style="dim")
