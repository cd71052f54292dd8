"""Whole namespaces into files and back, from the shell and from Python, through the running Loom."""

import json
from pathlib import Path

import pytest
from support.up import UpProcess, run_loom

from loom_client import Loom, LoomError


def loom(up: UpProcess, *arguments: str) -> str:
    done = run_loom(*arguments, "--data-dir", up.data_dir)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_namespace_goes_into_a_file_and_comes_back_and_a_second_time_changes_nothing(
    up: UpProcess, tmp_path: Path
) -> None:
    file, again, hostile = tmp_path / "a.jsonl", tmp_path / "b.jsonl", tmp_path / "c.jsonl"
    with Loom(up.http_url, up.token) as client:
        for number in range(5):
            client.memory.set(f"memory number {number} of a file", key=f"file-{number}", user_id="mover")
        client.memory.set("memory number 0 of a file, told anew", key="file-0", user_id="mover")
        assert "5 memories written" in loom(up, "export", str(file), "--user", "mover")
        assert file.stat().st_mode & 0o777 == 0o600
        lines = file.read_bytes().splitlines()
        assert [json.loads(line)["key"] for line in lines] == [f"file-{number}" for number in range(5)]
        for number in range(5):
            client.memory.delete(f"file-{number}", user_id="mover")
        assert "5 would be stored" in loom(up, "import", str(file), "--dry-run")
        assert "5 stored, 0 unchanged, 0 refused" in loom(up, "import", str(file))
        assert "0 stored, 5 unchanged, 0 refused" in loom(up, "import", str(file))
        assert client.memory.get("file-0", user_id="mover").found
        loom(up, "export", str(again), "--user", "mover")
        values = [json.loads(line)["value"] for line in again.read_bytes().splitlines()]
        assert values == [json.loads(line)["value"] for line in lines]
        hostile.write_bytes(b'{"value": 5}\n' + lines[0] + b"\r\n" + b'{"value": "cut\n' + b"x" * 5_000_000)
        done = run_loom("import", str(hostile), "--json", "--data-dir", up.data_dir)
        told = json.loads(done.stdout)
        assert (done.returncode, told["unchanged"]) == (1, 1)
        assert [refused["line"] for refused in told["refused"]] == [1, 3, 4]
        # From any place that an export names it goes on, and what belongs to another is refused.
        parts = list(client.export(user_id="mover"))
        assert parts[-1].cursor
        assert list(client.export(user_id="mover", cursor=parts[-1].cursor)) == []
        with pytest.raises(LoomError) as caught:
            list(client.export(cursor=parts[-1].cursor))
        assert caught.value.reason == "INVALID_ARGUMENT"
