"""`loom doctor` without a Loom: what it finds in the environment, on the disk and of a database."""

import json
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from typer.testing import CliRunner

from loom_cli import doctor_database, doctor_machine, doctor_running, doctor_settings, keys
from loom_cli.__main__ import app
from loom_cli.doctor_findings import Finding, Level
from loom_common.migrations import MigrationState


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("LOOM_") or name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)
    # The command ends with its process; here it would quieten every later test.
    monkeypatch.setattr(doctor_database, "configure_logging", lambda *_: None)


def of(findings: "list[Finding] | Iterator[Finding]", area: str) -> list[tuple[Level, str]]:
    return [(finding.level, finding.message) for finding in findings if finding.area == area]


def test_on_a_fresh_machine_there_is_no_problem_and_the_exit_is_0(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["doctor", "--data-dir", str(tmp_path / "data"), "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["healthy"] is True
    assert {"settings", "providers", "directory", "gateway", "clickhouse"} <= {one["area"] for one in found["findings"]}
    assert all(one["advice"] for one in found["findings"] if one["level"] != "ok")
    assert not (tmp_path / "data").exists()


def test_a_variable_that_cannot_be_used_is_a_problem_told_once_and_the_exit_is_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOM_DRAIN_S", "soon")
    done = CliRunner().invoke(app, ["doctor", "--data-dir", str(tmp_path)])
    assert done.exit_code == 1
    assert done.stdout.count("LOOM_DRAIN_S") == 1
    monkeypatch.delenv("LOOM_DRAIN_S")
    monkeypatch.setenv("LOOM_LLM_MODLE", "x")
    assert "LOOM_LLM_MODEL" in CliRunner().invoke(app, ["doctor", "--data-dir", str(tmp_path)]).stdout


def test_models_that_no_key_reaches_are_warnings_that_name_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOM_LLM_PROVIDER", "anthropic")
    monkeypatch.setenv("LOOM_EMBEDDING_MODEL", "text-embedding-3-small")
    found = [one for one in doctor_settings.examine(tmp_path).findings if one.area == "providers"]
    assert [one.level for one in found] == [Level.WARNING, Level.WARNING]
    assert "OPENAI_API_KEY" in found[0].advice
    assert "ANTHROPIC_API_KEY" in found[1].advice
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    monkeypatch.delenv("LOOM_EMBEDDING_MODEL")
    assert {level for level, _ in of(doctor_settings.examine(tmp_path).findings, "providers")} == {Level.OK}


def test_an_unknown_embedder_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_EMBEDDING_MODEL", "local:nothing")
    assert (Level.PROBLEM, "providers") in [(one.level, one.area) for one in doctor_settings.examine(tmp_path).findings]


def test_secrets_that_others_can_read_are_a_problem(tmp_path: Path) -> None:
    keys.ensure(tmp_path)
    assert {level for level, _ in of(doctor_machine.examine(tmp_path, here=True), "directory")} == {Level.OK}
    (tmp_path / "secret").chmod(0o644)
    problems = [
        text for level, text in of(doctor_machine.examine(tmp_path, here=True), "directory") if level == "problem"
    ]
    assert len(problems) == 1
    assert "secret" in problems[0]
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o644  # nothing is changed


def test_a_data_directory_that_is_a_file_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    assert of(doctor_machine.examine(tmp_path / "data", here=True), "directory")[0][0] is Level.PROBLEM


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("secret", b"\xff\xfe", "secret cannot be read"),
        ("run.json", b'{"pid": "x", "http_url": 5, "grpc": "no"}', "run.json cannot be read"),
        ("run.json", b"[]", "run.json cannot be read"),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_a_problem_and_no_defect(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    (tmp_path / name).chmod(0o600)
    done = CliRunner().invoke(app, ["doctor", "--data-dir", str(tmp_path), "--json"])
    assert (done.exit_code, type(done.exception)) == (1, SystemExit)
    problems = [one["message"] for one in json.loads(done.stdout)["findings"] if one["level"] == "problem"]
    assert any(said in message for message in problems)


def test_a_path_that_cannot_be_one_is_a_problem(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path, area in ((str(loop), "settings"), ("~nobody-here/x", "settings"), (f"/{'x' * 300}", "directory")):
        done = CliRunner().invoke(app, ["doctor", "--data-dir", path, "--json"])
        assert done.exit_code == 1
        found = json.loads(done.stdout)["findings"]
        assert area in [one["area"] for one in found if one["level"] == "problem"]


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    try:
        holder = socket.create_server(("127.0.0.1", 50055))
    except OSError:
        holder = None  # somebody else holds it, which serves as well
    try:
        found = of(doctor_machine.examine(tmp_path, here=False), "ports")
    finally:
        if holder is not None:
            holder.close()
    assert any(level is Level.WARNING and "50055" in text for level, text in found)


def test_migrations_to_come_and_those_of_a_newer_build_are_warnings() -> None:
    assert doctor_database._migrations("memory", MigrationState((), ())) is None
    for state in (MigrationState((4, 5), ()), MigrationState((), (9,))):
        found = doctor_database._migrations("memory", state)
        assert found is not None
        assert found.level is Level.WARNING


@pytest.mark.parametrize(("apart_s", "level"), [(0.1, "ok"), (5, "warning"), (120, "problem")])
def test_clocks_that_differ_matter_by_how_much(apart_s: float, level: str) -> None:
    assert doctor_database._clock(apart_s).level == level


def test_a_server_that_does_not_answer_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_CLICKHOUSE_URL", "http://default:s3cret@127.0.0.1:9/loom")
    done = CliRunner().invoke(app, ["doctor", "--data-dir", str(tmp_path)])
    assert done.exit_code == 1
    assert "s3cret" not in done.output
    assert any(line.startswith("problem  clickhouse") for line in done.stdout.splitlines())


@contextmanager
def stand_in(health: object, refusal: str = "") -> Iterator[str]:
    """Serves a gateway's health, and one operation."""

    async def show(_request: Request) -> Response:
        return JSONResponse(health)

    async def call(_request: Request) -> Response:
        return JSONResponse({"error": {"code": refusal}}, 401) if refusal else JSONResponse({})

    routes = [Route("/v1/health", show), Route("/v1/namespace.list", call, methods=["POST"])]
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_config=None, lifespan="off"))
    thread = Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def test_problems_of_a_running_loom_and_a_refused_token_are_told_with_their_codes() -> None:
    health: dict[str, object] = {
        "status": "degraded",
        "ready": True,
        "version": "1",
        "checks": {"memory": {"ok": False}, "identity": {"ok": True}},
        "problems": [
            {"code": "memory_unavailable", "service": "memory", "severity": "error", "message": "It is away."},
            {"code": "fake_llm", "service": "llm", "severity": "warning", "message": "It echoes."},
        ],
    }
    with stand_in(health, "TOKEN_EXPIRED") as url:
        found = list(doctor_running.examine(doctor_running.Target(url, "a.b.c")))
    assert {(one.level.value, one.area) for one in found} == {
        ("ok", "gateway"),
        ("ok", "services"),
        ("problem", "services"),
        ("warning", "services"),
        ("ok", "clocks"),
        ("problem", "tokens"),
    }
    assert any("TOKEN_EXPIRED" in one.message for one in found)


def test_an_address_that_is_no_loom_is_told_so() -> None:
    for answer in ({}, 5, {"checks": None}):
        with stand_in(answer) as url:
            found = list(doctor_running.examine(doctor_running.Target(url)))
        assert found[0].level is Level.PROBLEM
    gone = list(doctor_running.examine(doctor_running.Target("http://127.0.0.1:9")))
    assert [one.level for one in gone] == [Level.PROBLEM]
