"""Commands against a running Loom, as a person types them."""

import json
from pathlib import Path

import httpx
from support.up import UpProcess, environment, run_loom
from typer.testing import CliRunner

from loom_cli.__main__ import app


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


def typed(up: UpProcess, *arguments: str) -> str:
    """Runs a command in this process: a start of Python for each would take longer than all of them."""
    done = CliRunner().invoke(app, [*arguments, "--data-dir", str(up.data_dir)])
    assert done.exit_code == 0, (done.output, done.exception)
    return str(done.output)


def test_namespaces_grants_and_organisations_are_managed_from_the_shell(up: UpProcess) -> None:
    made = json.loads(typed(up, "namespace", "create", "shell", "--owner", "ana@example.org", "--json"))
    assert (made["created"], made["shared"], made["kind"]) == (True, False, "memory")
    changed = json.loads(typed(up, "namespace", "update", "shell", "--daily-cost-cap", "5", "--json"))
    assert (changed["changed"], changed["daily_cost_cap_usd"], changed["owner"]) == (True, 5.0, "ana@example.org")
    assert "shell (memory, of ana@example.org)" in typed(up, "namespace", "list")

    grant = ("sa:shell", "shell")
    assert json.loads(typed(up, "grant", "set", *grant, "writer", "--json"))["role"] == "writer"
    token = json.loads(typed(up, "token", "create", "--subject", "sa:shell", "--namespace", "shell", "--json"))["token"]
    beyond = ("token", "create", "--subject", "sa:shell", "--namespace", "default")
    refused = run_loom(*beyond, "--data-dir", up.data_dir)
    assert (refused.returncode, len(refused.stderr.strip().splitlines())) == (1, 1)
    assert typed(up, "grant", "list", "--subject", "sa:shell").strip() == "sa:shell is writer on shell"
    assert json.loads(typed(up, "grant", "remove", *grant, "--json")) == {"removed": True, "ended_tokens": 1}
    assert up.post("memory.list", token=token).json()["error"]["code"] == "TOKEN_REVOKED"

    assert json.loads(typed(up, "org", "create", "acme", "--display-name", "Acme", "--json"))["created"] is True
    assert "acme (Acme)" in typed(up, "org", "list")
    [sealed] = json.loads(typed(up, "secrets", "reseal", "--json"))
    assert (sealed["kind"], sealed["resealed"], sealed["unopened"]) == ("signing_keys", 0, 0)


def test_a_link_of_the_shell_signs_its_owner_in(up: UpProcess) -> None:
    link = json.loads(typed(up, "sign-in-link", "--json"))["link"]
    address, _, secret = link.partition("#link=")
    answer = httpx.post(f"{address}/link", json={"secret": secret}, trust_env=False)
    assert (answer.status_code, answer.json()["subject"], answer.json()["org"]) == (200, "owner@localhost", "default")


def test_texts_are_embedded_again_by_the_running_loom(up: UpProcess) -> None:
    done = json.loads(loom(up, "reembed", "--namespace", "default", "--json"))
    assert (done["finished"], done["total"], done["failed"]) == (True, 0, 0)
    refused = run_loom("reembed", "--key-only", "--staged", "--data-dir", up.data_dir)
    assert (refused.returncode, len(refused.stderr.strip().splitlines())) == (1, 1)


def test_where_no_loom_runs_the_command_opens_what_it_needs(tmp_path: Path) -> None:
    quiet = environment(LOOM_EMBEDDING_MODEL="fake-ngram-64")
    done = run_loom("reembed", "--json", "--data-dir", tmp_path, env=quiet)
    assert done.returncode == 0, done.stderr
    assert (json.loads(done.stdout)["model"], json.loads(done.stdout)["total"]) == ("fake-ngram-64", 0)
    looked = run_loom("doctor", "--data-dir", tmp_path, env=quiet)
    assert looked.returncode == 0, looked.stdout + looked.stderr
    assert "looked at those of every service" in looked.stdout


def test_doctor_finds_no_problem_in_a_loom_that_runs(up: UpProcess) -> None:
    found = json.loads(loom(up, "doctor", "--json"))
    assert found["healthy"] is True
    areas = {one["area"] for one in found["findings"] if one["level"] == "ok"}
    assert areas >= {"settings", "directory", "ports", "gateway", "services", "tokens", "clickhouse", "clocks"}
    assert up.token not in json.dumps(found)


def test_every_command_explains_itself() -> None:
    for command in (
        "",
        "up",
        "status",
        "doctor",
        "reembed",
        "token",
        "token create",
        "memory",
        "memory search",
        "namespace",
        "grant set",
        "org",
        "secrets reseal",
    ):
        done = run_loom(*command.split(), "--help")
        assert done.returncode == 0
        assert "Usage" in done.stdout


def test_the_version_is_printed() -> None:
    assert run_loom("--version").stdout.startswith("loom ")
