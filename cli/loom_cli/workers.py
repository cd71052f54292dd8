"""`loom workers`: shows what works in the background, and has what was given up tried again."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, TypeVar

import typer

from loom_cli import options
from loom_cli.console import OUT, CommandError, print_json

if TYPE_CHECKING:
    from loom.memory.v1 import workers_pb2, workers_pb2_grpc

    WorkersStub: TypeAlias = "workers_pb2_grpc.WorkersServiceAsyncStub"

T = TypeVar("T")

app = typer.Typer(
    help="Shows what works in the background, and has what was given up tried again.", no_args_is_help=True
)

OrgFilter = Annotated[str, typer.Option(help="Only this organisation. Default: every one.", show_default=False)]
NamespaceFilter = Annotated[
    str, typer.Option(help="Only namespaces of this name. Default: every one.", show_default=False)
]

_TIMEOUT_S: Final = 15.0


@app.command("status")
def workers_status(data_dir: options.DataDir = None, as_json: options.AsJson = False) -> None:
    """Tells of every worker: whether it is on, who leads it, and its last pass. Ends with 1 where one is broken."""
    from loom.memory.v1 import workers_pb2 as pb

    answer = _call(data_dir, lambda stub: stub.ListWorkers(pb.ListWorkersRequest()))
    if as_json:
        print_json(status_to_json(answer))
    else:
        for line in status_lines(answer):
            OUT.print(line, markup=False)
    raise typer.Exit(1 if any(worker.broken for worker in answer.workers) else 0)


@app.command("list-dead")
def list_dead(
    org: OrgFilter = "",
    namespace: NamespaceFilter = "",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Most entries.")] = 100,
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Lists work that is not tried any more, newest first."""
    from loom.memory.v1 import workers_pb2 as pb

    request = pb.ListDeadWorkRequest(org=org, namespace=namespace, limit=limit)
    answer = _call(data_dir, lambda stub: stub.ListDeadWork(request))
    if as_json:
        print_json([dead_to_json(work) for work in answer.work])
        return
    for line in dead_lines(answer):
        OUT.print(line, markup=False)


@app.command("retry")
def retry(
    ids: Annotated[list[str] | None, typer.Argument(help="Entries of `list-dead`.", show_default=False)] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that was given up.")] = False,
    org: OrgFilter = "",
    namespace: NamespaceFilter = "",
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Has work tried again that was given up, as if it had never been."""
    from loom.memory.v1 import workers_pb2 as pb

    if bool(ids) == everything:
        raise CommandError("name entries of `loom workers list-dead`, or give --all")
    request = pb.RetryDeadWorkRequest(org=org, namespace=namespace, ids=ids or [])
    answer = _call(data_dir, lambda stub: stub.RetryDeadWork(request))
    if as_json:
        print_json({"retried": answer.retried_count})
    else:
        OUT.print(f"{answer.retried_count} are tried again", markup=False)


def status_to_json(answer: "workers_pb2.ListWorkersResponse") -> dict[str, Any]:
    """Returns what `--json` prints of the workers."""
    queue = answer.extraction_queue
    return {
        "workers": [
            {
                "name": worker.name,
                "summary": worker.summary,
                "enabled": worker.enabled,
                "setting": worker.setting,
                "holder": worker.holder,
                "started_at": worker.started_at,
                "finished_at": worker.finished_at,
                "outcome": worker.outcome,
                "counts": dict(worker.counts),
                "broken": worker.broken,
            }
            for worker in answer.workers
        ],
        "extraction_queue": {
            "pending": queue.pending_count,
            "running": queue.running_count,
            "held": queue.held_count,
            "dead": queue.dead_count,
            "oldest_pending_s": queue.oldest_pending_s,
        },
    }


def status_lines(answer: "workers_pb2.ListWorkersResponse") -> list[str]:
    """Returns what is printed of the workers for people."""
    width = max((len(worker.name) for worker in answer.workers), default=0)
    lines = [f"{worker.name:<{width}}  {_state(worker)}" for worker in answer.workers]
    queue = answer.extraction_queue
    waiting = f", the oldest for {queue.oldest_pending_s} s" if queue.pending_count else ""
    lines.append(
        f"extraction queue: {queue.pending_count} wait{waiting}, {queue.running_count} are worked on, "
        f"{queue.held_count} held, {queue.dead_count} given up"
    )
    if queue.dead_count:
        lines.append("see `loom workers list-dead`, and `loom workers retry` once the cause is gone")
    return lines


def dead_to_json(work: "workers_pb2.DeadWork") -> dict[str, Any]:
    """Returns what `--json` prints of an entry."""
    return {
        "id": work.id,
        "worker": work.worker,
        "org": work.org,
        "namespace": work.namespace,
        "enqueued_by": work.enqueued_by,
        "attempts": work.attempt_count,
        "reason": work.reason,
        "message": work.message,
        "created_at": work.created_at,
        "given_up_at": work.given_up_at,
    }


def dead_lines(answer: "workers_pb2.ListDeadWorkResponse") -> list[str]:
    """Returns what is printed of what was given up for people."""
    # Here: `loom --help` need not wait for it.
    from loom_common.redaction import escape

    if not answer.work:
        return ["nothing was given up"]
    # Whoever may write chooses these names: they must neither forge lines nor steer the operator's terminal.
    return [
        escape(
            f"{work.id}  {work.given_up_at}  {work.org}/{work.namespace}  {work.enqueued_by}  {work.reason} "
            f"after {work.attempt_count}: {work.message}"
        )
        for work in answer.work
    ]


def _state(worker: "workers_pb2.WorkerStatus") -> str:
    if worker.broken:
        return "ended by a fault; see the log, then restart memory"
    if not worker.enabled:
        return f"off ({worker.setting})" if worker.setting else "off"
    if worker.holder and worker.started_at and not worker.finished_at:
        return f"works since {worker.started_at} in {worker.holder}"
    if not worker.started_at:
        return f"led by {worker.holder}" if worker.holder else "has had nothing to do"
    counts = ", ".join(f"{count} {what}" for what, count in sorted(worker.counts.items()))
    ended = worker.finished_at or "no end: its process was stopped"
    return f"last pass {ended}: {worker.outcome or 'interrupted'}{f' ({counts})' if counts else ''}"


def _call(data_dir: Path | None, work: Callable[["WorkersStub"], Awaitable[T]]) -> T:
    async def session() -> T:
        from loom.memory.v1 import workers_pb2_grpc
        from loom_cli.owner import owner_channel

        async with owner_channel(options.directory(data_dir)) as channel:
            async with asyncio.timeout(_TIMEOUT_S):
                return await work(workers_pb2_grpc.WorkersServiceStub(channel))

    return asyncio.run(session())
