"""What `loom reembed` tells of a run."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from loom.memory.v1 import maintenance_pb2 as pb
from loom_cli.console import OUT, CommandError
from loom_cli.owner import _require_directory
from loom_cli.reembed import Outcome, follow, reembed

BEGUN = pb.ReembedResponse(model="new", dim=128, total_count=3)
FAILED = pb.ReembedFailure(table="memory_embeddings", org="acme", namespace="[bold]", key="k", reason="PROVIDER_FAILED")


class Call:
    """Stands in for a streaming call: gives its messages, then waits where it is told to."""

    def __init__(self, messages: Sequence[pb.ReembedResponse], *, ends: bool = True) -> None:
        self.messages, self.ends, self.cancelled = messages, ends, False

    def Reembed(self, request: pb.ReembedRequest) -> "Call":
        return self

    async def __aiter__(self) -> AsyncIterator[pb.ReembedResponse]:
        for message in self.messages:
            yield message
        if not self.ends:
            await asyncio.Event().wait()

    def cancel(self) -> None:
        self.cancelled = True


def outcome_of(*messages: pb.ReembedResponse, dry_run: bool = False, interrupted: bool = False) -> Outcome:
    outcome = Outcome(dry_run=dry_run)
    for message in messages:
        outcome.note(message)
    outcome.interrupted = interrupted
    return outcome


def last(**counts: int) -> pb.ReembedResponse:
    return pb.ReembedResponse(model="new", dim=128, finished=True, **counts)


@pytest.mark.parametrize(
    ("outcome", "code", "line"),
    [
        (outcome_of(BEGUN, last(total_count=3, done_count=3)), 0, "3 of 3 texts have vectors of new (128 wide) now"),
        (outcome_of(last()), 0, "no text waits for vectors of new (128 wide); nothing to do"),
        (outcome_of(last(total_count=3), dry_run=True), 0, "3 texts wait for vectors of new (128 wide); nothing was"),
        (outcome_of(last(total_count=3, done_count=2, failed_count=1)), 1, "1 failed"),
        (outcome_of(last(total_count=3, withheld_count=2)), 1, "2 namespaces stay as they were"),
        (outcome_of(last(total_count=1, deleted_count=4)), 0, "old vectors removed from 4 texts"),
        (outcome_of(BEGUN), 1, "run it again with --resume"),
        (outcome_of(BEGUN, interrupted=True), 130, "run it again with --resume"),
        (outcome_of(), 1, ""),
    ],
)
def test_what_was_done_is_printed_and_decides_the_exit_code(outcome: Outcome, code: int, line: str) -> None:
    with OUT.capture() as printed:
        outcome.print(as_json=False)
    assert line in " ".join(printed.get().split())
    assert outcome.exit_code == code


def test_failures_of_all_messages_are_told_as_they_are_named() -> None:
    middle = pb.ReembedResponse(model="new", dim=128, failed_count=1, failures=[FAILED])
    outcome = outcome_of(BEGUN, middle, last(total_count=3, done_count=2, failed_count=1))
    with OUT.capture() as printed:
        outcome.print(as_json=False)
    assert "acme/[bold] k: PROVIDER_FAILED" in printed.get()
    told = outcome.to_json()
    assert (told["done"], told["failed"], told["finished"]) == (2, 1, True)
    assert told["failures"][0]["key"] == "k"


def test_a_key_forges_no_line_and_steers_no_terminal() -> None:
    failed = pb.ReembedFailure(org="acme", namespace="team", key="k\nall done\x1b[2J\x9b31m", reason="PROVIDER_FAILED")
    with OUT.capture() as printed:
        outcome_of(pb.ReembedResponse(model="new", dim=128, failed_count=1, failures=[failed])).print(as_json=False)
    assert r"acme/team k\nall done\u001b[2J\u009b31m: PROVIDER_FAILED" in printed.get()


def test_a_directory_that_is_not_there_is_not_made_for_a_database(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="none"):
        _require_directory(tmp_path / "none", is_database=True)
    _require_directory(tmp_path / "keys", is_database=False)
    assert [path.name for path in tmp_path.iterdir()] == ["keys"]


async def test_a_run_that_is_left_is_ended() -> None:
    seen = asyncio.Event()
    call: Any = Call([BEGUN], ends=False)  # stands in for a generated stub
    task = asyncio.create_task(follow(call, pb.ReembedRequest(), lambda _: seen.set()))
    async with asyncio.timeout(5):
        await seen.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert call.cancelled


@pytest.mark.parametrize("option", ["--org", "--namespace", "--in-database"])
@pytest.mark.parametrize("value", ["", " "])
def test_an_option_that_is_empty_is_refused_and_does_not_mean_everything(option: str, value: str) -> None:
    app = typer.Typer()
    app.command()(reembed)
    found = CliRunner().invoke(app, [option, value, "--data-dir", "/nowhere"])
    assert found.exit_code == 2
    assert "must not be empty" in found.output
