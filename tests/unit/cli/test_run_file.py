"""Whether a `run.json` that was found stands for a Loom that runs."""

import os
import socket
from dataclasses import replace

import pytest

from loom_cli.run_file import RunFile, answers


@pytest.fixture
def run() -> RunFile:
    # A process that lives as long as this one and is no Loom: the number of a killed start, given out again.
    return RunFile(os.getppid(), "http://127.0.0.1:1", "", {}, "token", "default", "default")


def test_a_living_process_that_answers_nothing_is_no_loom(run: RunFile) -> None:
    assert not answers(run)


def test_a_loom_is_a_process_of_its_own_that_answers(run: RunFile) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        there = replace(run, http_url=f"http://127.0.0.1:{listener.getsockname()[1]}")
        assert answers(there)
        assert not answers(replace(there, pid=os.getpid()))


def test_the_token_is_shown_by_no_repr(run: RunFile) -> None:
    assert run.token not in repr(run)
