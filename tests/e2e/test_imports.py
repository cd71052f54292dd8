"""Files of other systems into the running Loom, from the shell."""

import json
from pathlib import Path
from typing import Any

from support.up import UpProcess, run_loom

from loom_client import Loom

EXPORTS = Path(__file__).parents[1] / "support" / "exports"


def imported(up: UpProcess, *arguments: str, code: int = 0) -> dict[str, Any]:
    done = run_loom("import", *arguments, "--json", "--data-dir", up.data_dir)
    assert done.returncode == code, (done.stdout, done.stderr)
    told: dict[str, Any] = json.loads(done.stdout)
    taken = told["stored"] + told["unchanged"] + len(told["refused"]) + told["skipped"]
    assert taken == told["read"], told
    return told


def test_files_of_other_systems_are_stored_once_however_often_they_are_imported(up: UpProcess, tmp_path: Path) -> None:
    mem0, zep = str(EXPORTS / "mem0.json"), str(EXPORTS / "zep.json")
    assert imported(up, "mem0", mem0, "--dry-run")["stored"] == 2
    assert imported(up, "mem0", mem0)["stored"] == 2
    assert imported(up, "mem0", mem0)["unchanged"] == 2
    assert imported(up, "zep", zep)["stored"] == 4
    mcp = [json.loads(line) for line in (EXPORTS / "mcp_memory.jsonl").read_text().splitlines()]
    mcp[0]["observations"] += ["half \ud800 of a pair", 5, "x" * 70_000]
    hostile = tmp_path / "memory.jsonl"
    hostile.write_text("\n".join(map(json.dumps, [*mcp, 7])))
    told = imported(up, "mcp-memory", str(hostile), code=1)
    assert (told["read"], told["stored"]) == (8, 4)
    assert [one["where"] for one in told["refused"]] == [
        "line 1 (Ana), observation 4",
        "line 4",
        "line 1 (Ana), observation 3",
        "line 1 (Ana), observation 5",
    ]
    assert imported(up, "chatgpt", str(EXPORTS / "chatgpt.json"), "--as", "memories", "--user", "mia")["stored"] == 4
    with Loom(up.http_url, up.token) as client:
        tea = client.memory.get("mem0-7a1c1a52-0b5e-4c0a-9a52-3f4c1f7d2a01", user_id="ana").memory
        assert tea is not None
        assert (tea.value, tea.version, list(tea.tags)) == (
            "Ana drinks green tea in the morning",
            2,
            ["mem0", "drinks"],
        )
        lives = client.memory.get("zep-fact-c0ffee00-0000-4000-8000-000000000011").memory
        assert lives is not None
        assert lives.invalid_at.startswith("2025-06-01")
        talk = str(EXPORTS / "claude.json")
        assert imported(up, "claude", talk, "--user", "mia", "--dry-run")["stored"] == 2
        assert imported(up, "claude", talk, "--user", "mia")["stored"] == 2
        assert imported(up, "claude", talk, "--user", "mia")["unchanged"] == 2
        letta = imported(up, "letta", str(EXPORTS / "letta.af"))
        assert (letta["read"], letta["stored"], letta["skipped"]) == (9, 5, 4)
        held = client.call("conversation.get", {"conversation_id": "5f1e0000-0000-4000-8000-000000000001"})
        assert [(turn["role"], turn["author"]) for turn in held["turns"]] == [
            ("user", "mia"),
            ("assistant", "assistant"),
        ]
        assert held["turns"][1]["at"].startswith("2025-03-01T08:00:05")
    cut = tmp_path / "cut.json"
    cut.write_bytes(Path(zep).read_bytes()[:-20])
    done = run_loom("import", "zep", str(cut), "--data-dir", up.data_dir)
    assert done.returncode == 1
    assert "nothing was stored" in done.stderr.replace("\n", " ")
