"""The hook of Claude Code and Cursor, as an editor starts it, against a server that answers as Loom does."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

INTEGRATIONS = Path(__file__).resolve().parents[3] / "integrations"
HOOK = INTEGRATIONS / "hooks" / "loom_hook.py"


class StandIn(ThreadingHTTPServer):
    """Answers what it is told to, and keeps what it was sent."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, tuple[int, Any]] = {}
        self.sent: list[tuple[str, dict[str, Any], Mapping[str, str]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: StandIn

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        op = self.path.removeprefix("/v1/")
        self.server.sent.append((op, body, dict(self.headers)))
        status, answer = self.server.answers.get(op, (404, {"error": {"code": "UNKNOWN_OP", "message": "no such op"}}))
        content = (answer(body) if callable(answer) else json.dumps(answer)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def running() -> Iterator[StandIn]:
    with StandIn() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join(5)


@pytest.fixture
def server(running: StandIn) -> StandIn:
    running.answers = {"context.pack": (200, {"rendered": "what is known"}), "memory.set": (200, {"stored": True})}
    running.sent = []
    return running


def run(server: StandIn, event: Any, *options: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    env = {"PATH": os.environ["PATH"], "LOOM_BASE_URL": server.url, "LOOM_API_KEY": "key", **variables}
    given = event if isinstance(event, str) else json.dumps(event)
    return subprocess.run(
        [sys.executable, "-I", HOOK, *options], input=given, env=env, capture_output=True, text=True, timeout=20
    )


def event(name: str, **fields: Any) -> dict[str, Any]:
    return {"hook_event_name": name, "session_id": "s-1", "cwd": "/home/ana/shop", **fields}


def transcript(tmp_path: Path) -> Path:
    lines: list[Any] = [
        {"type": "user", "message": {"role": "user", "content": "Fix the flaky export test"}},
        {"type": "user", "isMeta": True, "message": {"role": "user", "content": "not asked"}},
        {"type": "user", "message": {"role": "user", "content": "<command-name>/clear</command-name>"}},
        {
            "type": "assistant",
            "message": {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I will look."},
                    {"type": "tool_use", "name": "Edit", "input": {"file_path": "shop/export.py"}},
                    {"type": "tool_use", "name": "Bash", "input": {"command": "pytest"}},
                ],
            },
        },
        {"type": "user", "message": {"role": "user", "content": [{"type": "tool_result", "content": "1 passed"}]}},
        {"type": "user", "message": {"role": "user", "content": "And say why"}},
        {
            "type": "assistant",
            "message": {"role": "assistant", "content": [{"type": "text", "text": "A race.\n" * 900}]},
        },
        {"type": "summary", "summary": "s"},
    ]
    path = tmp_path / "transcript.jsonl"
    path.write_text("\n".join([*(json.dumps(line) for line in lines), "{cut"]), "utf-8")
    return path


def test_a_session_of_claude_code_begins_with_a_pack_of_its_project(server: StandIn) -> None:
    done = run(server, event("SessionStart", source="startup"), "--namespace", "team", "--budget", "1500")
    told = {"hookEventName": "SessionStart", "additionalContext": "what is known"}
    assert (done.returncode, done.stderr, json.loads(done.stdout)) == (0, "", {"hookSpecificOutput": told})
    [(op, body, headers)] = server.sent
    assert op == "context.pack"
    assert (body["mode"], body["token_budget"], body["agent"], body["session_id"]) == (
        "startup",
        1500,
        "claude-code",
        "s-1",
    )
    assert "shop" in body["query"]
    assert (headers["Authorization"], headers["X-Loom-Namespace"]) == ("Bearer key", "team")
    run(server, event("SessionStart", source="compact"))
    assert server.sent[1][1]["mode"] == "handoff"


def test_a_session_of_cursor_begins_with_the_same_in_cursors_form(server: StandIn) -> None:
    asked = {"hook_event_name": "sessionStart", "conversation_id": "c-1", "workspace_roots": ["/home/ana/shop"]}
    done = run(server, asked)
    assert json.loads(done.stdout) == {"additional_context": "what is known"}
    assert (server.sent[0][1]["agent"], server.sent[0][1]["session_id"]) == ("cursor", "c-1")


def test_a_prompt_is_answered_with_what_is_remembered_of_it_if_it_asks_anything(server: StandIn) -> None:
    done = run(server, event("UserPromptSubmit", prompt="why is the export test flaky? ü" + "ü" * 9_000))
    assert json.loads(done.stdout)["hookSpecificOutput"]["hookEventName"] == "UserPromptSubmit"
    body = server.sent[0][1]
    assert body["only_sections"] == ["memories", "decisions", "procedures"]
    assert len(body["query"].encode()) <= 8_192
    assert run(server, event("UserPromptSubmit", prompt="go on")).stdout == ""
    assert len(server.sent) == 1


def test_a_pack_that_the_editor_would_cut_is_packed_smaller(server: StandIn) -> None:
    server.answers["context.pack"] = (200, lambda body: json.dumps({"rendered": "x" * body["token_budget"] * 8}))
    done = run(server, event("SessionStart"))
    assert len(json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"]) == 8_000
    assert [body["token_budget"] for _, body, _ in server.sent] == [2_000, 1_000]


@pytest.mark.parametrize("name", ["SessionEnd", "PreCompact", "sessionEnd", "preCompact"])
def test_a_session_leaves_a_brief_of_its_task_its_files_and_its_end(server: StandIn, tmp_path: Path, name: str) -> None:
    done = run(server, event(name, transcript_path=str(transcript(tmp_path))))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    [(op, body, _)] = server.sent
    assert op == "memory.set"
    assert body["key"] == "session-brief/shop/s-1"
    assert body["tags"] == ["session-brief", "project:shop"]
    task, last, files, end = body["value"].splitlines()[1:]
    assert task == "Task: Fix the flaky export test"
    assert last == "Last asked (2 prompts): And say why"
    assert files == "Files changed: shop/export.py"
    assert end.startswith("Ended with: A race. A race.")
    assert len(body["value"]) < 2_500


def test_no_failure_holds_the_editor_up_and_each_is_told_on_the_standard_error(server: StandIn, tmp_path: Path) -> None:
    start = event("SessionStart")
    server.answers["memory.set"] = (200, {"stored": False, "reason": "sensitive", "message": "it holds a password"})
    cases: list[tuple[Any, dict[str, str], str]] = [
        (start, {"LOOM_API_KEY": ""}, "LOOM_API_KEY"),
        (start, {"LOOM_BASE_URL": "http://127.0.0.1:9"}, "does not answer"),
        (start, {"LOOM_BASE_URL": "file:///etc"}, "http"),
        ("no json", {}, "loom:"),
        ("[]", {}, "loom:"),
        (event("SessionEnd", transcript_path=str(transcript(tmp_path))), {}, "password"),
        (event("SessionEnd", transcript_path=str(tmp_path / "gone")), {}, ""),
        (event("SessionEnd"), {}, ""),
        (event("OfALaterVersion"), {}, ""),
        ({}, {}, ""),
    ]
    for given, variables, said in cases:
        done = run(server, given, **variables)
        assert (done.returncode, done.stdout) == (0, ""), given
        assert said in done.stderr
        assert bool(done.stderr) == bool(said), done.stderr
    server.answers["context.pack"] = (429, {"error": {"code": "RATE_LIMITED", "message": "wait"}})
    assert "RATE_LIMITED: wait" in run(server, start).stderr
    server.answers["context.pack"] = (502, "<html>")
    assert "HTTP 502" in run(server, start).stderr


def test_the_settings_that_are_shown_name_events_that_the_hook_knows() -> None:
    handled = {"SessionStart", "UserPromptSubmit", "PreCompact", "SessionEnd"}
    claude = json.loads((INTEGRATIONS / "claude-code" / "settings.json").read_text())["hooks"]
    cursor = json.loads((INTEGRATIONS / "cursor" / "hooks.json").read_text())
    assert set(claude) == handled
    assert {name[:1].upper() + name[1:] for name in cursor["hooks"]} == handled - {"UserPromptSubmit"}
    commands = [hook["command"] for group in claude.values() for entry in group for hook in entry["hooks"]]
    commands += [hook["command"] for group in cursor["hooks"].values() for hook in group]
    assert all("hooks/loom_hook.py" in command for command in commands)
    for folder in ("claude-code", "cursor"):
        server = json.loads((INTEGRATIONS / folder / "mcp.json").read_text())["mcpServers"]["loom"]
        assert server["url"].endswith("/mcp/coding")
        assert "LOOM_API_KEY" in server["headers"]["Authorization"]
