#!/usr/bin/env python3
"""Hook of Claude Code and Cursor: gives a session what Loom remembers, and leaves a brief of it behind.

The editor starts it for an event, with the event as JSON on its standard input:

    SessionStart, sessionStart    answers a context pack for the project
    UserPromptSubmit              answers what is remembered of the prompt
    PreCompact, SessionEnd        saves a brief of the session (Cursor: preCompact, sessionEnd)

It reads LOOM_BASE_URL and LOOM_API_KEY, needs nothing but Python 3.9, and never holds an editor up: where Loom is away
or refuses, it says so on its standard error and ends with 0.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# Editors show the model no more than this of a hook's answer as it is. Units: characters.
MAX_CONTEXT_CHARS = 9_500
# Least budget that a pack takes. Units: tokens.
MIN_BUDGET = 200
MAX_PROMPT_BYTES = 8_192
MAX_BRIEF_CHARS = 6_000
MAX_PART_CHARS = 1_500
MAX_FILES = 40
# A transcript may be long; what a brief needs stands at its ends. Units: bytes.
MAX_TRANSCRIPT_BYTES = 64 * 1024 * 1024
EDITING_TOOLS = {"Edit", "MultiEdit", "NotebookEdit", "Write", "edit_file", "search_replace", "write"}


class NoAnswer(Exception):
    """Loom is away, refused, or answered something else."""


class Loom:
    """Calls operations over HTTP."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._base_url = os.environ.get("LOOM_BASE_URL", "http://127.0.0.1:8080").rstrip("/")
        self._token = os.environ.get("LOOM_API_KEY", "")
        self._namespace = options.namespace
        self._timeout_s = options.timeout

    def call(self, op: str, body: dict[str, Any]) -> dict[str, Any]:
        """Calls an operation and returns its answer.

        Raises:
            NoAnswer: There is none that can be used.
        """
        if not self._token:
            raise NoAnswer("LOOM_API_KEY is not set")
        if not self._base_url.startswith(("http://", "https://")):
            raise NoAnswer("LOOM_BASE_URL must begin with http:// or https://")
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        if self._namespace:
            headers["X-Loom-Namespace"] = self._namespace
        content = json.dumps({name: value for name, value in body.items() if value not in ("", None)}).encode()
        request = urllib.request.Request(f"{self._base_url}/v1/{op}", content, headers)  # noqa: S310  # checked above
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as answer:  # noqa: S310  # as above
                told = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise NoAnswer(f"{op}: {_reason(error)}") from error
        except (OSError, ValueError) as error:
            raise NoAnswer(f"{op}: {self._base_url} does not answer ({error})") from error
        if not isinstance(told, dict):
            raise NoAnswer(f"{op}: the answer is not Loom's")
        return told


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        told = json.loads(error.read())["error"]
        return f"{told['code']}: {told['message']}"
    except (ValueError, KeyError, TypeError, OSError):
        return f"HTTP {error.code}"


def prime(loom: Loom, event: dict[str, Any], options: argparse.Namespace) -> str:
    """Returns the context that a session begins with."""
    resumed = event.get("source") in ("resume", "compact")
    project = project_of(event)
    return packed(
        loom,
        {
            "query": f"Last session in {project}, its decisions and open tasks",
            "situation": f"Working in the project {project}",
            "mode": "handoff" if resumed else "startup",
            "token_budget": options.budget,
            "agent": editor_of(event),
            "session_id": session_of(event),
        },
    )


def recall(loom: Loom, event: dict[str, Any], options: argparse.Namespace) -> str:
    """Returns what is remembered of a prompt; nothing for one that is too short to ask anything."""
    prompt = str(event.get("prompt", ""))
    if len(prompt.split()) < options.min_words:
        return ""
    return packed(
        loom,
        {
            "query": prompt.encode()[:MAX_PROMPT_BYTES].decode(errors="ignore"),
            "only_sections": ["memories", "decisions", "procedures"],
            "token_budget": options.prompt_budget,
            "agent": editor_of(event),
        },
    )


def packed(loom: Loom, asked: dict[str, Any]) -> str:
    """Packs a context that an editor shows whole: a cut one would end within a fence."""
    while True:
        text = str(loom.call("context.pack", asked).get("rendered", ""))
        if len(text) <= MAX_CONTEXT_CHARS or asked["token_budget"] <= MIN_BUDGET:
            return text if len(text) <= MAX_CONTEXT_CHARS else ""
        asked["token_budget"] = max(MIN_BUDGET, asked["token_budget"] // 2)


def save(loom: Loom, event: dict[str, Any], _: argparse.Namespace) -> str:
    """Saves a brief of the session, if anything was said in it, and answers nothing."""
    text = brief(event)
    if text:
        project = project_of(event)
        stored = loom.call(
            "memory.set",
            {
                "key": f"session-brief/{project}/{session_of(event) or 'last'}"[:512],
                "value": text,
                "kind": "event",
                "tags": ["session-brief", f"project:{project}"[:64]],
                "agent": editor_of(event),
                "source": "session brief",
                "verbatim": True,
            },
        )
        if not stored.get("stored") and stored.get("reason") != "unchanged":
            raise NoAnswer(f"the brief is not stored: {stored.get('message')}")
    return ""


def brief(event: dict[str, Any]) -> str:
    """Returns what a session was about, by its transcript: the task, the files and how it ended. No model is asked."""
    asked: list[str] = []
    answered = ""
    files: dict[str, None] = {}
    for role, content in transcript(event.get("transcript_path")):
        for kind, part in parts(content):
            if kind == "file":
                files[part] = None
            elif role == "user":
                asked.append(part)
            elif role == "assistant":
                answered = part
    if not asked:
        return ""
    lines = [f"Last session in {project_of(event)} ({editor_of(event)}).", f"Task: {clip(asked[0])}"]
    if len(asked) > 1:
        lines.append(f"Last asked ({len(asked)} prompts): {clip(asked[-1])}")
    if files:
        named = list(files)[:MAX_FILES]
        lines.append("Files changed: " + ", ".join(named) + (" and more" if len(files) > len(named) else ""))
    if answered:
        lines.append(f"Ended with: {clip(answered)}")
    return "\n".join(lines)[:MAX_BRIEF_CHARS]


def transcript(path: Any) -> Iterator[tuple[str, Any]]:
    """Yields role and content of each message of a transcript of JSON lines; what cannot be read is passed over."""
    if not path:
        return
    try:
        file = Path(str(path))
        if file.stat().st_size > MAX_TRANSCRIPT_BYTES:
            return
        lines = file.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if not isinstance(entry, dict) or entry.get("isMeta") or entry.get("isSidechain"):
            continue
        inner = entry.get("message")
        message = inner if isinstance(inner, dict) else entry
        role = message.get("role") or entry.get("type") or entry.get("role")
        yield str(role), message.get("content")


def parts(content: Any) -> Iterator[tuple[str, str]]:
    """Yields what a message says, as `text`, and the files that its tools changed, as `file`."""
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for block in blocks if isinstance(blocks, list) else []:
        if not isinstance(block, dict):
            continue
        text = block.get("text")
        # What an editor puts into a prompt by itself stands in tags, and was not asked by anyone.
        if block.get("type") == "text" and isinstance(text, str) and text.strip() and not text.lstrip().startswith("<"):
            yield "text", text.strip()
        given = block.get("input")
        if block.get("type") == "tool_use" and block.get("name") in EDITING_TOOLS and isinstance(given, dict):
            path = given.get("file_path") or given.get("path") or given.get("notebook_path")
            if isinstance(path, str):
                yield "file", path


def clip(text: str) -> str:
    """Returns a text in one line, cut where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_PART_CHARS else line[:MAX_PART_CHARS].rstrip() + " ..."


def project_of(event: dict[str, Any]) -> str:
    """Returns the name of the folder that the session works in."""
    roots = event.get("workspace_roots") or [event.get("cwd") or os.getcwd()]
    return Path(str(roots[0])).name or "project"


def session_of(event: dict[str, Any]) -> str:
    """Returns the session's name, as the editor gives it."""
    return str(event.get("session_id") or event.get("conversation_id") or "")[:256]


def editor_of(event: dict[str, Any]) -> str:
    """Returns whose event it is: Cursor writes events with a small letter first, or names its version."""
    name = str(event.get("hook_event_name", ""))
    return "cursor" if name[:1].islower() or "cursor_version" in event else "claude-code"


def answer(event: dict[str, Any], context: str) -> str:
    """Returns the answer in the editor's form; empty where there is nothing to say."""
    if not context:
        return ""
    if editor_of(event) == "cursor":
        return json.dumps({"additional_context": context})
    told = {"hookEventName": event["hook_event_name"], "additionalContext": context}
    return json.dumps({"hookSpecificOutput": told})


HANDLERS: dict[str, Callable[[Loom, dict[str, Any], argparse.Namespace], str]] = {
    "sessionstart": prime,
    "userpromptsubmit": recall,
    "precompact": save,
    "sessionend": save,
}


def options_of(arguments: list[str]) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="Hook of Claude Code and Cursor for Loom.")
    parser.add_argument("--namespace", default="", help="Namespace to read and write. Default: the token's first.")
    parser.add_argument("--budget", type=int, default=2_000, help="Tokens that a session begins with. Default: 2,000.")
    parser.add_argument("--prompt-budget", type=int, default=600, help="Tokens beside a prompt. Default: 600.")
    parser.add_argument("--min-words", type=int, default=4, help="Words of a prompt worth a recall. Default: 4.")
    parser.add_argument("--timeout", type=float, default=5.0, help="Longest wait for Loom, in seconds. Default: 5.")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Handles one event; always answers 0, so that a session goes on without its memory."""
    options = options_of(arguments)
    try:
        event = json.loads(sys.stdin.read())
        handler = HANDLERS.get(str(event.get("hook_event_name", "")).lower())
        told = answer(event, handler(Loom(options), event, options)) if handler else ""
    except (NoAnswer, ValueError, AttributeError) as error:
        sys.stderr.write(f"loom: {error}\n")
        return 0
    if told:
        sys.stdout.write(told + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
