"""Commands against a running Loom, as a person types them."""

import json
from pathlib import Path

from support.up import UpProcess, environment, run_loom


def loom(up: UpProcess, *arguments: str) -> str:
    done = run_loom(*arguments, "--data-dir", up.data_dir)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_memory_is_stored_found_listed_and_shown_from_the_shell(up: UpProcess) -> None:
    assert "stored cli-tea" in loom(up, "memory", "set", "Ana drinks green tea", "--key", "cli-tea", "--tag", "cli")
    assert "nothing stored" in loom(up, "memory", "set", "Ana drinks green tea", "--key", "cli-tea", "--tag", "cli")
    assert "cli-tea" in loom(up, "memory", "search", "what does Ana drink?")
    assert "cli-tea" in loom(up, "memory", "list")
    assert loom(up, "memory", "get", "cli-tea").strip() == "Ana drinks green tea"
    assert json.loads(loom(up, "memory", "get", "cli-tea", "--json"))["tags"] == ["cli"]


def test_a_missing_memory_is_one_line_and_no_success(up: UpProcess) -> None:
    done = run_loom("memory", "get", "never-stored", "--data-dir", up.data_dir)
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_token_is_made_listed_used_and_revoked_from_the_shell(up: UpProcess) -> None:
    made = json.loads(loom(up, "token", "create", "--role", "viewer", "--label", "cli test", "--json"))
    assert up.post("memory.list", token=made["token"]).status_code == 200
    refused = up.post("memory.set", {"value": "x"}, token=made["token"])
    assert refused.json()["error"]["code"] == "AUTH_INSUFFICIENT"
    listed = {token["token_id"]: token for token in json.loads(loom(up, "token", "list", "--json"))}
    assert listed[made["token_id"]]["label"] == "cli test"
    assert made["token"] not in json.dumps(listed)
    loom(up, "token", "revoke", made["token_id"])
    assert up.post("memory.list", token=made["token"]).json()["error"]["code"] == "TOKEN_REVOKED"


def test_texts_are_embedded_again_by_the_running_loom(up: UpProcess) -> None:
    done = json.loads(loom(up, "reembed", "--namespace", "default", "--json"))
    assert (done["finished"], done["total"], done["failed"]) == (True, 0, 0)
    refused = run_loom("reembed", "--key-only", "--data-dir", up.data_dir)
    assert (refused.returncode, len(refused.stderr.strip().splitlines())) == (1, 1)


def test_where_no_loom_runs_the_command_opens_what_it_needs(tmp_path: Path) -> None:
    quiet = environment(LOOM_EMBEDDING_MODEL="fake-ngram-64")
    done = run_loom("reembed", "--json", "--data-dir", tmp_path, env=quiet)
    assert done.returncode == 0, done.stderr
    assert (json.loads(done.stdout)["model"], json.loads(done.stdout)["total"]) == ("fake-ngram-64", 0)


def test_every_command_explains_itself() -> None:
    for command in ("", "up", "status", "reembed", "token", "token create", "memory", "memory search"):
        done = run_loom(*command.split(), "--help")
        assert done.returncode == 0
        assert "Usage" in done.stdout


def test_the_version_is_printed() -> None:
    assert run_loom("--version").stdout.startswith("loom ")
