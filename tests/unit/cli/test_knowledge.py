"""`loom knowledge`: what is sent of what is named, and how the command ends."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from loom_cli import knowledge
from loom_cli.console import CommandError
from loom_cli.knowledge import Item, Outcome
from loom_client import LoomError


def test_a_folder_gives_its_documents_and_no_hidden_or_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("docs/b.md", "docs/a.PDF", "docs/deep/c.py", "docs/.git/d.md", "docs/.e.md", "docs/f.png", "g.bin"):
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    Path("docs/inside.md").symlink_to("b.md")
    Path("docs/outside.md").symlink_to(tmp_path / "g.bin")
    found = list(knowledge._items(["docs", "g.bin", "https://docs.example.com/x"], "kb/"))
    assert [item.source_uri for item in found] == [
        "kb/docs/a.PDF", "kb/docs/b.md", "kb/docs/deep/c.py", "kb/docs/inside.md", "kb/g.bin",
        "https://docs.example.com/x",
    ]  # fmt: skip
    with pytest.raises(CommandError, match="no file"):
        list(knowledge._items(["missing"], ""))


class Answers:
    """Stands for the client: answers in turn."""

    def __init__(self, *answers: Any) -> None:
        self.knowledge = self
        self.given: list[Mapping[str, Any]] = []
        self._answers = list(answers)

    def ingest(self, documents: Sequence[Mapping[str, Any]], namespace: str | None = None) -> Any:
        self.given.append(documents[0])
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_document_that_is_refused_does_not_end_the_others_and_a_call_that_is_does(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_bytes(b"# A")
    item = Item("a.md", path)

    def send(loom: Any, sent: Item = item) -> dict[str, Any]:
        return knowledge._send(loom, None, sent, ["t"], None, lambda done, total: None)

    too_long = LoomError("PAYLOAD_TOO_LARGE", "It is too long.", status=413)
    assert send(Answers(too_long))["message"] == "It is too long."
    with pytest.raises(CommandError, match="not allowed"):
        send(Answers(LoomError("AUTH_INSUFFICIENT", "This is not allowed.", status=403)))
    (tmp_path / "empty.md").touch()
    assert send(Answers(), Item("e", tmp_path / "empty.md"))["status"] == "refused"
    assert send(Answers(), Item("none", tmp_path / "none.md"))["status"] == "refused"
    assert send(Answers(), Item("\udcff.md", path))["message"] == "It has a name that is no text."
    path.write_bytes(b"x" * (knowledge._HTTP_BYTES + 1))
    assert "this machine" in send(Answers())["message"]


def test_the_command_ends_with_one_where_a_document_was_refused() -> None:
    outcome = Outcome()
    outcome.note({"status": "stored"})
    outcome.note({"status": "unchanged"})
    assert outcome.exit_code == 0
    outcome.note({"status": "refused", "message": "\x1b[2Jno"})
    assert outcome.exit_code == 1
    assert "\x1b" not in knowledge._line(outcome.results[-1])
