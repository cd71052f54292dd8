"""`loom replay`: asks earlier searches again, another way, and tells how their hits have moved."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from loom_cli import options
from loom_cli.console import ERR, OUT, CommandError, print_json

if TYPE_CHECKING:
    from loom.memory.v1 import replay_pb2

_INTERRUPTED: Final = 130
_SHOWN: Final = 20


def replay(
    recipe: Annotated[str, typer.Option(help="Recipe to ask them with, such as quality.", show_default=False)] = "",
    search_mode: Annotated[
        str, typer.Option(help="Legs to ask them with: hybrid, vector or lexical.", show_default=False)
    ] = "",
    as_of: Annotated[
        str,
        typer.Option(
            help="Moment to ask about, such as 2026-10-01; `asked` for the moment of each search.", show_default=False
        ),
    ] = "",
    embedder: Annotated[
        str,
        typer.Option(
            help="Embedder to ask them with: prefix:<width>:<model> for the first numbers of the served vectors.",
            show_default=False,
        ),
    ] = "",
    weight: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Weight in place of the recipe's; again for each.", show_default=False),
    ] = None,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Compare with what was found at the time, not with the same search now.")
    ] = False,
    days: Annotated[int, typer.Option(min=1, max=400, help="Days to look back.")] = 30,
    limit: Annotated[
        int, typer.Option(min=1, max=100_000, help="Most searches to ask, each distinct one once.")
    ] = 1000,
    top_k: Annotated[int, typer.Option(min=1, max=100, help="Hits to compare.")] = 10,
    org: Annotated[str, typer.Option(help="Only this organisation. Default: every one.", show_default=False)] = "",
    namespace: Annotated[
        str, typer.Option(help="Only namespaces of this name. Default: every one.", show_default=False)
    ] = "",
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Asks the searches of the last days again, another way, and compares the hits: what moved, entered and left.

    Searches are kept for LOOM_MEMORY_SEARCH_TRACE_DAYS days, and never those of restricted namespaces. A running Loom
    does the work; where none runs, this command does. Nothing that it asks is kept or counted. Ends with 0 when all
    were asked, and with 1 when some could not be.
    """
    from loom.memory.v1 import memory_pb2
    from loom.memory.v1 import replay_pb2 as pb

    weights = memory_pb2.SearchWeights(**_weights(weight or [])) if weight else None
    request = pb.ReplayRequest(
        org=org,
        namespace=namespace,
        days=days,
        limit=limit,
        after=pb.ReplayWay(recipe=recipe, search_mode=search_mode, as_of=as_of, embedder=embedder, weights=weights),
        top_k=top_k,
        as_recorded=recorded,
    )
    report = Report(top_k)
    try:
        asyncio.run(_run(options.directory(data_dir), request, report))
    except KeyboardInterrupt:
        report.interrupted = True
    if as_json:
        print_json(report.to_json())
    else:
        for line in report.lines():
            OUT.print(line, markup=False)
    raise typer.Exit(report.exit_code)


class Report:
    """What a replay told so far."""

    def __init__(self, top_k: int) -> None:
        self.interrupted = False
        self._top_k = top_k
        self._searches: list[replay_pb2.ReplayedSearch] = []
        self._summary: replay_pb2.ReplaySummary | None = None

    def note(self, message: "replay_pb2.ReplayResponse") -> None:
        """Takes one message."""
        if message.HasField("search"):
            self._searches.append(message.search)
        if message.HasField("summary"):
            self._summary = message.summary

    @property
    def exit_code(self) -> int:
        """0 when all were asked, 1 when some could not be, 130 after Ctrl-C."""
        if self.interrupted:
            return _INTERRUPTED
        return 0 if self._summary is not None and not self._summary.failed_count else 1

    def to_json(self) -> dict[str, Any]:
        """Returns what `--json` prints."""
        return {
            "interrupted": self.interrupted,
            "summary": None if self._summary is None else summary_to_json(self._summary, self._top_k),
            "searches": [search_to_json(search) for search in self._searches],
        }

    def lines(self) -> list[str]:
        """Returns what is printed: the searches that changed most, then the sums."""
        from loom_common.redaction import escape

        changed = sorted(
            (search for search in self._searches if search.error or not _is_same(search)),
            key=lambda search: (not search.error, search.overlap),
        )
        lines = []
        for search in changed[:_SHOWN]:
            # Whoever may search chooses the words: they must neither forge lines nor steer the operator's terminal.
            lines.append(escape(f"{search.overlap:4.0%}  {search.org}/{search.namespace}  {search.query}"))
            if search.error:
                lines.append(f"      failed: {search.error}")
            lines += [escape(f"      {_move(hit)}  {hit.key}") for hit in search.hits if hit.change != "same"]
        if len(changed) > _SHOWN:
            lines.append(f"... and {len(changed) - _SHOWN} more; --json has them all")
        return [*lines, *self._sums()]

    def _sums(self) -> list[str]:
        summary = self._summary
        if summary is None:
            return ["stopped before the end"]
        if not summary.compared_count and not summary.failed_count:
            return ["no search is kept that could be asked again (LOOM_MEMORY_SEARCH_TRACE_DAYS)"]
        return [
            f"{summary.compared_count} searches compared, {summary.same_count} the same, {summary.failed_count} failed",
            f"overlap@{self._top_k} {summary.mean_overlap:.3f}; {summary.first_changed_count} have another first hit",
            f"hits: {summary.moved_count} moved, {summary.entered_count} entered, {summary.left_count} left",
            f"{summary.answered_count} find something now that found nothing, "
            f"{summary.abstained_count} nothing any more",
        ]


def summary_to_json(summary: "replay_pb2.ReplaySummary", top_k: int) -> dict[str, Any]:
    """Returns the sums as `--json` prints them."""
    return {
        "compared": summary.compared_count,
        "failed": summary.failed_count,
        "same": summary.same_count,
        "first_changed": summary.first_changed_count,
        "moved": summary.moved_count,
        "entered": summary.entered_count,
        "left": summary.left_count,
        "answered": summary.answered_count,
        "abstained": summary.abstained_count,
        "mean_overlap": summary.mean_overlap,
        "top_k": top_k,
    }


def search_to_json(search: "replay_pb2.ReplayedSearch") -> dict[str, Any]:
    """Returns one search as `--json` prints it."""
    return {
        "org": search.org,
        "namespace": search.namespace,
        "query": search.query,
        "asked_at": search.asked_at,
        "overlap": search.overlap,
        "error": search.error,
        "hits": [
            {
                "key": hit.key,
                "user_id": hit.user_id,
                "session_id": hit.session_id,
                "before": hit.rank_before or None,
                "after": hit.rank_after or None,
                "change": hit.change,
            }
            for hit in search.hits
        ],
    }


def _is_same(search: "replay_pb2.ReplayedSearch") -> bool:
    return all(hit.change == "same" for hit in search.hits)


def _move(hit: "replay_pb2.ReplayedHit") -> str:
    before, after = hit.rank_before or "-", hit.rank_after or "-"
    return f"{before!s:>3} -> {after!s:<3} {hit.change}"


def _weights(given: list[str]) -> dict[str, float]:
    from loom.memory.v1 import memory_pb2

    names = sorted(memory_pb2.SearchWeights.DESCRIPTOR.fields_by_name)
    found = {}
    for text in given:
        name, _, value = text.partition("=")
        try:
            found[name] = float(value)
        except ValueError:
            raise CommandError(f"--weight {text} is not NAME=VALUE, such as recency=0") from None
        if name not in names:
            raise CommandError(f"--weight {text} names none of {', '.join(names)}")
    return found


async def _run(data_dir: Path, request: "replay_pb2.ReplayRequest", report: Report) -> None:
    # Here: `loom --help` need not wait for them.
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from loom.memory.v1 import replay_pb2_grpc
    from loom_cli.owner import owner_channel

    columns = (TextColumn("searching again"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    async with owner_channel(data_dir) as channel:
        with Progress(*columns, console=ERR, transient=True, disable=not ERR.is_terminal) as bar:
            task = bar.add_task("replay", total=None)
            call = replay_pb2_grpc.ReplayServiceStub(channel).Replay(request)
            try:
                async for message in call:
                    report.note(message)
                    bar.update(task, total=message.total_count, completed=message.done_count)
            finally:
                call.cancel()
