"""The hook of Claude Code and Cursor with a running Loom: a session's brief is what the next one begins with."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.up import UpProcess, environment

HOOK = Path(__file__).resolve().parents[2] / "integrations" / "hooks" / "loom_hook.py"


def run(up: UpProcess, name: str, **fields: Any) -> str:
    event = {"hook_event_name": name, "session_id": "s-1", "cwd": "/home/ana/lighthouse", **fields}
    env = environment(LOOM_BASE_URL=up.http_url, LOOM_API_KEY=up.token)
    done = subprocess.run(
        [sys.executable, HOOK], input=json.dumps(event), env=env, capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_brief_of_a_session_is_what_the_next_one_begins_with(up: UpProcess, tmp_path: Path) -> None:
    transcript = tmp_path / "transcript.jsonl"
    said = [("user", "Make the lamp of the lighthouse turn slower"), ("assistant", "It turns every 12 seconds now.")]
    lines = [json.dumps({"type": role, "message": {"role": role, "content": text}}) for role, text in said]
    transcript.write_text("\n".join(lines))
    assert run(up, "SessionEnd", transcript_path=str(transcript)) == ""
    told = json.loads(run(up, "SessionStart", source="startup"))["hookSpecificOutput"]["additionalContext"]
    assert "It turns every 12 seconds now." in told
    assert "<<data " in told
    asked = json.loads(run(up, "UserPromptSubmit", prompt="how fast does the lamp of the lighthouse turn?"))
    assert "12 seconds" in asked["hookSpecificOutput"]["additionalContext"]
    assert "12 seconds" in json.loads(run(up, "sessionStart"))["additional_context"]
