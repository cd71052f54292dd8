"""What a file holds, sent: counted to the last message, and gone on with where a run was stopped."""

import io
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from loom_cli.importers.converting import Converted, convert
from loom_cli.importers.sending import How, Sent, send
from loom_client import Imported, LoomError

HOW = How(namespace="n", user="mia", dry_run=False, skip_existing=False)


class FakeTarget:
    """Keeps what it is sent, as the server does; refuses bodies with `bad` in them, and turns with `long`."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.turns: dict[tuple[str, str], dict[str, Any]] = {}
        self.calls = 0
        self.is_down = False

    def import_(self, lines: Iterable[bytes], **asked: Any) -> Iterator[Imported]:
        done = Imported()
        for line in lines:
            done.lines += 1
            done.stored += line not in self.lines
            done.unchanged += line in self.lines
            self.lines.append(line)
            yield done

    def call(self, op: str, body: Mapping[str, Any] | None = None, /) -> dict[str, Any]:
        assert op == "conversation.append"
        assert body is not None
        self.calls += 1
        if self.is_down:
            raise LoomError("BACKEND_UNAVAILABLE", "out of reach")
        if any("bad" in turn["text"] for turn in body["turns"]):
            raise LoomError("MALFORMED_REQUEST", "cannot be read")
        results = []
        for turn in body["turns"]:
            place = (body["conversation_id"], turn["turn_id"])
            status = "refused" if "long" in turn["text"] else "repeated" if place in self.turns else "stored"
            if status == "stored":
                self.turns[place] = {**turn, "user_id": body["user_id"], "namespace": body["namespace"]}
            results.append({"turn_id": turn["turn_id"], "status": status, "error": "too long"})
        return {"results": results}


def export(tmp_path: Path, *conversations: tuple[str, list[str]]) -> Converted:
    told = [
        {
            "uuid": name,
            "name": name,
            "chat_messages": [
                {"uuid": f"m{at}", "sender": "human" if at % 2 else "assistant", "text": text}
                for at, text in enumerate(texts, 1)
            ],
        }
        for name, texts in conversations
    ]
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps(told))
    return convert("claude", file, io.BytesIO, user="mia", as_memories=False)


def test_each_message_is_stored_or_refused_by_its_name_and_a_second_time_changes_nothing(tmp_path: Path) -> None:
    found = export(tmp_path, ("c1", ["one", "bad", "too long"]), ("c2", [f"said {at}" for at in range(250)]))
    target, sent, again = FakeTarget(), Sent(), Sent()
    send(target, found, HOW, sent, lambda _sent: None)
    assert (sent.stored, sent.unchanged, sent.conversations) == (251, 0, 2)
    assert [one.where for one in sent.refused] == ["item 1 (c1), message m2", "item 1 (c1), message m3"]
    first = target.turns["c1", "m1"]
    assert (first["author"], first["role"], first["user_id"], first["namespace"]) == ("mia", "user", "mia", "n")
    send(target, found, HOW, again, lambda _sent: None)
    assert (again.stored, again.unchanged, len(again.refused)) == (0, 251, 2)


def test_a_run_that_is_stopped_goes_on_behind_what_is_counted(tmp_path: Path) -> None:
    found = export(tmp_path, ("c1", ["one"]), ("c2", ["two"]))
    target, sent = FakeTarget(), Sent()

    def note(grown: Sent) -> None:
        target.is_down = grown.conversations == 1

    with pytest.raises(LoomError, match="out of reach"):
        send(target, found, HOW, sent, note)
    assert (sent.stored, sent.conversations) == (1, 1)
    target.is_down, target.calls = False, 0
    send(target, found, HOW, sent, lambda _sent: None)
    assert (sent.stored, sent.conversations, target.calls) == (2, 2, 1)


def test_a_dry_run_sends_no_message(tmp_path: Path) -> None:
    target, sent = FakeTarget(), Sent()
    found = export(tmp_path, ("c1", ["one", "two"]))
    send(target, found, How("n", "", dry_run=True, skip_existing=False), sent, lambda _sent: None)
    assert (sent.stored, target.calls) == (2, 0)
