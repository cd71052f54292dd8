"""Every prompt's text is held to its version, and publishing sends what changed and notes what Langfuse made of it."""

import base64
import importlib.util
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from loom_common.prompts import Locked, Prompt, PromptsError, lock_text, read_lock, reference, registered, relocked
from loom_common.settings import LangfuseSettings

ROOT = Path(__file__).parents[3]
GREETING = Prompt("demo", "greeting", "1", "Say hello.")


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("push_prompts", ROOT / "scripts" / "push_prompts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


push_prompts = script()
PROMPTS = registered(push_prompts.PACKAGES)


def test_there_are_prompts() -> None:
    assert "structured_output.json_directive" in PROMPTS


def test_the_lock_holds_every_prompt_and_no_other() -> None:
    lock = read_lock(push_prompts.LOCK.read_text("utf-8"))
    assert lock_text(relocked(PROMPTS, lock)) == lock_text(lock), "run scripts/push_prompts.py --lock"


@pytest.mark.parametrize(
    "changed", [replace(GREETING, text="Say goodbye."), replace(GREETING, version="2")], ids=["text", "version"]
)
def test_a_text_and_its_version_change_together_or_not_at_all(changed: Prompt) -> None:
    lock = relocked({GREETING.id: GREETING}, {})
    with pytest.raises(PromptsError):
        relocked({changed.id: changed}, lock)


def test_a_new_version_waits_to_be_published_and_an_old_one_keeps_its_line() -> None:
    other = replace(GREETING, name="other")
    lock = {
        name: replace(held, published=4) for name, held in relocked({p.id: p for p in (GREETING, other)}, {}).items()
    }
    second = replace(GREETING, version="2", text="Say good morning.")
    assert relocked({second.id: second, other.id: other}, lock) == {
        "demo.greeting": Locked("2", second.hash, None),
        "demo.other": Locked("1", other.hash, 4),
    }


def test_a_span_learns_the_digest_of_a_version_that_the_lock_knows_and_of_no_other() -> None:
    known = PROMPTS["structured_output.json_directive"]
    assert reference(known.family, known.name, known.version) == known.ref
    assert reference(known.family, known.name, "0").hash == ""
    assert reference("demo", "", "1").name == "demo"


class Langfuse:
    """Takes prompts as Langfuse does; fails from the `failing`th on."""

    def __init__(self) -> None:
        self.got: list[tuple[str, str, dict[str, Any]]] = []
        self.failing = 99
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.got.append((self.path, self.headers["authorization"], body))
                failed = len(outer.got) >= outer.failing
                answer = json.dumps({"error": "no"} if failed else {"name": body["name"], "version": 7}).encode()
                self.send_response(500 if failed else 201)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def stand_in() -> Iterator[Langfuse]:
    langfuse = Langfuse()
    thread = threading.Thread(target=langfuse.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield langfuse
    langfuse.server.shutdown()
    thread.join()
    langfuse.server.server_close()


def client_of(stand_in: Langfuse, token: str = "pk:sk") -> Any:
    return push_prompts.langfuse(LangfuseSettings(LOOM_LANGFUSE_URL=stand_in.url, LOOM_LANGFUSE_ADMIN_TOKEN=token))


@pytest.mark.parametrize(
    ("token", "sent"), [("pk:sk", f"Basic {base64.b64encode(b'pk:sk').decode()}"), ("admin", "Bearer admin")]
)
def test_what_changed_is_published_once_and_the_lock_notes_it(
    stand_in: Langfuse, tmp_path: Path, token: str, sent: str
) -> None:
    lock = tmp_path / "lock.json"
    with client_of(stand_in, token) as client:
        assert len(push_prompts.push({GREETING.id: GREETING}, lock, client)) == 1
        assert push_prompts.push({GREETING.id: GREETING}, lock, client) == []
    ((path, authorization, body),) = stand_in.got
    assert (path, authorization) == ("/api/public/v2/prompts", sent)
    assert (body["name"], body["prompt"], body["type"]) == ("demo.greeting", "Say hello.", "text")
    assert read_lock(lock.read_text()) == {"demo.greeting": Locked("1", GREETING.hash, 7)}


def test_a_failure_forgets_nothing_that_was_published(stand_in: Langfuse, tmp_path: Path) -> None:
    prompts, lock = {p.id: p for p in (GREETING, replace(GREETING, name="other"))}, tmp_path / "lock.json"
    stand_in.failing = 2
    with client_of(stand_in) as client, pytest.raises(push_prompts.PublishError):
        push_prompts.push(prompts, lock, client)
    assert [held.published for held in read_lock(lock.read_text()).values()] == [7, None]


def test_a_dry_run_sends_nothing_and_publishing_needs_an_address(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = push_prompts.LOCK.read_text("utf-8")
    assert push_prompts.main([]) == 0
    assert "would publish structured_output.json_directive" in capsys.readouterr().out
    monkeypatch.delenv("LOOM_LANGFUSE_URL", raising=False)
    assert push_prompts.main(["--write"]) == 1
    assert "LOOM_LANGFUSE_URL" in capsys.readouterr().err
    assert push_prompts.LOCK.read_text("utf-8") == before
