"""`loom reembed`: gives every stored text vectors of the served model, after the embedder was changed."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from loom_cli import options
from loom_cli.console import ERR, OUT, print_json

if TYPE_CHECKING:
    from loom.memory.v1 import maintenance_pb2, maintenance_pb2_grpc

_INTERRUPTED: Final = 130


def _not_empty(value: str | None) -> str | None:
    """Refuses what a shell makes of a variable that is not set: it would mean every organisation, or another way."""
    if value is not None and not value.strip():
        raise typer.BadParameter("must not be empty")
    return value


def reembed(
    org: Annotated[
        str | None, typer.Option(callback=_not_empty, help="Only this organisation. Default: every one.")
    ] = None,
    namespace: Annotated[
        str | None, typer.Option(callback=_not_empty, help="Only namespaces of this name. Default: every one.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, max=500, help="Texts embedded at once.")] = 64,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what waits and write nothing.")] = False,
    key_only: Annotated[
        bool, typer.Option("--key-only", help="Only vectors of keys that say something, where a key has none.")
    ] = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on where a run stopped. What has its vectors is passed over in any case; with --staged this "
            "keeps what was staged.",
        ),
    ] = False,
    delete_old: Annotated[
        bool, typer.Option("--delete-old", help="Remove vectors of other models from what has new ones.")
    ] = False,
    staged: Annotated[
        bool,
        typer.Option(
            "--staged", help="Show a namespace's new vectors only once all are there, checked for number and width."
        ),
    ] = False,
    in_database: Annotated[
        str | None,
        typer.Option(
            callback=_not_empty,
            metavar="COLLECTION",
            help="Let ClickHouse embed texts of up to 2,000 characters itself, with aiEmbed and this named collection.",
        ),
    ] = None,
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Gives stored texts vectors of the served model, where they have none. Searches go on meanwhile.

    A running Loom does the work; where none runs, this command does. Ctrl-C stops it, and what was written stays. Ends
    with 0 when everything was done, and with 1 when some texts could not be embedded or another run is under way.
    """
    from loom.memory.v1 import maintenance_pb2 as pb

    request = pb.ReembedRequest(
        org=org or "",
        namespace=namespace or "",
        batch_size=batch_size,
        dry_run=dry_run,
        key_only=key_only,
        resume=resume,
        delete_old=delete_old,
        staged=staged,
        in_database=in_database or "",
    )
    outcome = Outcome(dry_run=dry_run)
    try:
        asyncio.run(_run(options.directory(data_dir), request, outcome))
    except KeyboardInterrupt:
        outcome.interrupted = True
    finally:
        # Also before an error ends the command: what was done is done.
        outcome.print(as_json=as_json)
    raise typer.Exit(outcome.exit_code)


class Outcome:
    """What a run did, from its first message to its last."""

    def __init__(self, *, dry_run: bool) -> None:
        self.interrupted = False
        self._dry_run = dry_run
        self._last: maintenance_pb2.ReembedResponse | None = None
        self._failures: list[dict[str, str]] = []

    def note(self, message: "maintenance_pb2.ReembedResponse") -> None:
        """Takes one message of the run."""
        self._last = message
        self._failures += [
            {
                "table": failure.table,
                "org": failure.org,
                "namespace": failure.namespace,
                "key": failure.key,
                "reason": failure.reason,
            }
            for failure in message.failures
        ]

    @property
    def exit_code(self) -> int:
        """0 when everything was done, 1 when something could not be, 130 after Ctrl-C."""
        if self.interrupted:
            return _INTERRUPTED
        last = self._last
        return 0 if last is not None and last.finished and not (last.failed_count or last.withheld_count) else 1

    def to_json(self) -> dict[str, Any]:
        """Returns what `--json` prints."""
        assert self._last is not None, "there was a message"
        last = self._last
        return {
            "model": last.model,
            "dim": last.dim,
            "dry_run": self._dry_run,
            "finished": last.finished,
            "interrupted": self.interrupted,
            "total": last.total_count,
            "done": last.done_count,
            "skipped": last.skipped_count,
            "failed": last.failed_count,
            "deleted": last.deleted_count,
            "withheld": last.withheld_count,
            "failures": self._failures,
        }

    def print(self, *, as_json: bool) -> None:
        """Prints what was done; nothing when the run did not begin."""
        if self._last is None:
            if self.interrupted:
                ERR.print("stopped before anything was written", style="yellow", markup=False)
            return
        if as_json:
            print_json(self.to_json())
            return
        for line in self._lines(self._last):
            OUT.print(line, markup=False)

    def _lines(self, last: "maintenance_pb2.ReembedResponse") -> list[str]:
        # Here: `loom --help` need not wait for it.
        from loom_common.redaction import escape

        served = f"{last.model} ({last.dim} wide)"
        if self._dry_run:
            lines = [f"{last.total_count} texts wait for vectors of {served}; nothing was written"]
            return [*lines, f"{last.deleted_count} have old vectors to remove"] if last.deleted_count else lines
        if last.finished and not (last.total_count or last.deleted_count):
            return [f"no text waits for vectors of {served}; nothing to do"]
        lines = [
            f"{last.done_count} of {last.total_count} texts have vectors of {served} now, "
            f"{last.skipped_count} skipped, {last.failed_count} failed"
        ]
        if last.deleted_count:
            lines.append(f"old vectors removed from {last.deleted_count} texts")
        if last.withheld_count:
            lines.append(f"{last.withheld_count} namespaces stay as they were; repair and run again with --resume")
        lines += [
            # Whoever may write a memory chooses its key: it must neither forge lines nor steer the operator's terminal.
            escape(f"failed    {failure['org']}/{failure['namespace']} {failure['key']}: {failure['reason']}")
            for failure in self._failures
        ]
        if self.interrupted or not last.finished:
            lines.append("stopped; run it again with --resume to go on")
        return lines


async def follow(
    stub: "maintenance_pb2_grpc.MaintenanceServiceAsyncStub",
    request: "maintenance_pb2.ReembedRequest",
    note: Callable[["maintenance_pb2.ReembedResponse"], None],
) -> None:
    """Runs the call to its end, and ends it when the waiting is ended."""
    call = stub.Reembed(request)
    try:
        async for message in call:
            note(message)
    finally:
        call.cancel()


async def _run(data_dir: Path, request: "maintenance_pb2.ReembedRequest", outcome: Outcome) -> None:
    # Here: `loom --help` need not wait for them.
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from loom.memory.v1 import maintenance_pb2_grpc
    from loom_cli.owner import owner_channel

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    async with owner_channel(data_dir) as channel:
        with Progress(*columns, console=ERR, transient=True, disable=not ERR.is_terminal) as bar:
            task = bar.add_task("counting", total=None)

            def note(message: "maintenance_pb2.ReembedResponse") -> None:
                outcome.note(message)
                past = message.done_count + message.skipped_count + message.failed_count
                bar.update(
                    task,
                    # A namespace may be called anything, markup too.
                    description=_escaped(f"{message.org}/{message.namespace}" if message.table else "embedding"),
                    total=message.total_count,
                    completed=past,
                )

            await follow(maintenance_pb2_grpc.MaintenanceServiceStub(channel), request, note)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
