"""What `loom workers` tells of the background."""

import pytest
from typer.testing import CliRunner

from loom.memory.v1 import workers_pb2 as pb
from loom_cli.console import CommandError
from loom_cli.workers import app, dead_lines, dead_to_json, status_lines, status_to_json

QUEUE = pb.ExtractionQueueStatus(pending_count=2, oldest_pending_s=90, dead_count=1)
STATUS = pb.ListWorkersResponse(
    workers=[
        pb.WorkerStatus(name="broken", enabled=True, broken=True),
        pb.WorkerStatus(
            name="done",
            enabled=True,
            started_at="2026-11-30T12:00:00.000Z",
            finished_at="2026-11-30T12:00:01.000Z",
            outcome="ok",
            counts={"stored": 3},
        ),
        pb.WorkerStatus(name="off", setting="LOOM_X"),
        pb.WorkerStatus(name="working", enabled=True, holder="host/1", started_at="2026-11-30T12:00:00.000Z"),
        pb.WorkerStatus(name="idle", enabled=True),
    ],
    extraction_queue=QUEUE,
)
DEAD = pb.DeadWork(
    id="x-1", org="acme", namespace="\x1b[31mteam\nforged", reason="PROVIDER_FAILED", attempt_count=8, message="500"
)


def test_the_status_tells_of_every_worker_and_of_the_queue() -> None:
    assert status_lines(STATUS) == [
        "broken   ended by a fault; see the log, then restart memory",
        "done     last pass 2026-11-30T12:00:01.000Z: ok (3 stored)",
        "off      off (LOOM_X)",
        "working  works since 2026-11-30T12:00:00.000Z in host/1",
        "idle     has had nothing to do",
        "extraction queue: 2 wait, the oldest for 90 s, 0 are worked on, 0 held, 1 given up",
        "see `loom workers list-dead`, and `loom workers retry` once the cause is gone",
    ]


def test_json_has_the_same() -> None:
    told = status_to_json(STATUS)
    assert [worker["name"] for worker in told["workers"]] == ["broken", "done", "off", "working", "idle"]
    assert told["workers"][1]["counts"] == {"stored": 3}
    assert told["extraction_queue"]["dead"] == 1
    assert dead_to_json(DEAD)["attempts"] == 8


def test_a_name_neither_forges_a_line_nor_steers_the_terminal() -> None:
    (line,) = dead_lines(pb.ListDeadWorkResponse(work=[DEAD]))
    assert "\n" not in line
    assert "\x1b" not in line
    assert dead_lines(pb.ListDeadWorkResponse()) == ["nothing was given up"]


@pytest.mark.parametrize("arguments", [["retry"], ["retry", "x-1", "--all"]])
def test_a_retry_names_what_it_means(arguments: list[str]) -> None:
    assert isinstance(CliRunner().invoke(app, arguments).exception, CommandError)
