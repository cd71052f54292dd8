"""`loom import <kind> <file>`: what a file of another system holds, into a namespace."""

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from loom_cli import options
from loom_cli.console import ERR, OUT, CommandError, print_json
from loom_cli.importers.converting import KINDS, Converted, convert
from loom_cli.importers.items import BadFile
from loom_cli.importers.sending import How, NotTaken, Sent, send
from loom_cli.progress import bar
from loom_cli.run_state import RunState

if TYPE_CHECKING:
    from loom_client import Loom

_INTERRUPTED: Final = 130
# Refused things that are shown; `--json` shows all.
_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Order:
    """What a command line asks for."""

    kind: str
    file: Path
    how: How
    as_memories: bool
    resume: bool
    data_dir: Path | None
    as_json: bool


def import_file(order: Order) -> None:
    """Imports a file: reads it whole, then stores what it holds.

    Raises:
        CommandError: The file cannot be read; nothing is stored.
    """
    if order.kind not in KINDS:
        raise CommandError(f"{order.kind!r} is no kind of file; there are {', '.join(KINDS)}")
    if not order.file.is_file():
        raise CommandError(f"there is no file {order.file}")
    state = RunState(order.file.with_name(f"{order.file.name}.resume"))
    asked = {**asdict(order.how), "kind": order.kind, "as_memories": order.as_memories, **_facts_of(order.file)}
    sent = _resumed(state, asked) if order.resume else Sent()
    try:
        # In a file: what a large export holds need not fit into memory.
        user, as_memories = order.how.user, order.as_memories
        converted = convert(order.kind, order.file, tempfile.TemporaryFile, user=user, as_memories=as_memories)
    except BadFile as error:
        raise CommandError(f"{error}; nothing was stored") from error
    with converted, _client(order.data_dir) as loom:
        is_whole = False
        try:
            _send(loom, converted, order, sent, state, asked)
            is_whole = True
        except KeyboardInterrupt:
            ERR.print("stopped; what is counted is stored, and --resume goes on", style="yellow", markup=False)
            raise typer.Exit(_INTERRUPTED) from None
        finally:
            # Also before an error ends the command: what was stored is stored.
            _report(converted, sent, order, is_whole=is_whole)
    state.remove()
    if converted.refused or sent.refused:
        raise typer.Exit(1)


def _facts_of(file: Path) -> dict[str, int]:
    found = file.stat()
    return {"size": found.st_size, "changed_ns": found.st_mtime_ns}


def _resumed(state: RunState, asked: dict[str, Any]) -> Sent:
    held = state.read(asked)
    if not held:
        raise CommandError(f"nothing to go on with: {state.path} is not there, or of another file; leave --resume out")
    return Sent(**{**held, "refused": [NotTaken(**one) for one in held["refused"]]})


def _send(loom: "Loom", converted: Converted, order: Order, sent: Sent, state: RunState, asked: dict[str, Any]) -> None:
    total = len(converted.wheres) + converted.conversations
    with bar("importing", total, in_bytes=False) as shown:

        def note(grown: Sent) -> None:
            shown.to(grown.memories + grown.conversations)
            if not order.how.dry_run:
                state.write(asked, asdict(grown))

        send(loom, converted, order.how, sent, note)


def _client(data_dir: Path | None) -> "Loom":
    from loom_cli.client import client  # here: `loom --help` need not wait for it

    return client(options.directory(data_dir))


def _report(converted: Converted, sent: Sent, order: Order, *, is_whole: bool) -> None:
    from loom_common.redaction import escape  # here: `loom --help` need not wait for it

    refused = [NotTaken(one.where, "INVALID_ARGUMENT", one.why) for one in converted.refused] + sent.refused
    skipped = converted.skipped.total()
    if order.as_json:
        counts = {"read": converted.read, "stored": sent.stored, "unchanged": sent.unchanged, "skipped": skipped}
        told = [asdict(one) for one in refused]
        why = dict(sorted(converted.skipped.items()))
        print_json({**counts, "refused": told, "skipped_why": why, "dry_run": order.how.dry_run, "whole": is_whole})
        return
    verb = "would be stored" if order.how.dry_run else "stored"
    summary = f"{sent.stored} {verb}, {sent.unchanged} unchanged, {len(refused)} refused, {skipped} skipped"
    OUT.print(f"{converted.read} read: {summary}", markup=False)
    for reason, count in sorted(converted.skipped.items()):
        OUT.print(f"skipped {count}: {reason}", style="dim", markup=False)
    for one in refused[:_SHOWN]:
        # Whoever wrote the file chose its names: they must not steer a terminal.
        OUT.print(f"{escape(one.where)}: {escape(one.reason)}: {escape(one.message)}", markup=False)
    if len(refused) > _SHOWN:
        OUT.print(f"... and {len(refused) - _SHOWN} more; --json lists all", style="dim")
