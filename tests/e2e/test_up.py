"""`loom up` as a user meets it: what it leaves behind, what it refuses, how it stops."""

import json
import signal
import socket
import stat
from pathlib import Path

import httpx
from support.up import UpProcess, environment, launch, loom_up, read_run, run_loom


def one_line(text: str) -> str:
    lines = text.strip().splitlines()
    assert len(lines) == 1, text
    return lines[0]


def test_a_start_leaves_a_private_run_file_and_says_what_is_real(up: UpProcess) -> None:
    assert stat.S_IMODE((up.data_dir / "run.json").stat().st_mode) == 0o600
    assert {"pid", "http_url", "mcp_url", "grpc", "token", "org", "namespace"} <= set(up.run)
    assert set(up.run["grpc"]) == {"identity", "embedding", "llm", "memory", "insights", "assistant"}
    assert (up.run["org"], up.run["namespace"]) == ("default", "default")
    assert up.call("memory.set", {"value": "tea", "user_id": "test_up"})["stored"]
    printed = up.printed.read_text()
    assert up.http_url in printed
    assert up.token in printed
    assert "local:minilm (real)" in printed
    assert "fake-echo-1 (FAKE)" in printed
    for name in ("secret", "lock", "keys/operator.jwk", "keys/memory.jwk"):
        assert stat.S_IMODE((up.data_dir / name).stat().st_mode) == 0o600, name


def test_a_second_start_on_the_same_directory_names_the_first_and_harms_nothing(up: UpProcess) -> None:
    up.call("memory.set", {"value": "kept", "key": "kept", "user_id": "test_up"})
    second = run_loom("up", "--data-dir", up.data_dir, "--port", "0")
    assert second.returncode != 0
    assert str(up.process.pid) in one_line(second.stderr)
    assert up.call("memory.get", {"key": "kept", "user_id": "test_up"})["found"]
    assert read_run(up.data_dir) == up.run


def test_a_stop_exits_0_and_a_restart_keeps_memories_and_ends_the_token_of_the_start_before(tmp_path: Path) -> None:
    data = tmp_path / "data"
    interrupted = launch(data)
    while not (data / "secret").exists():
        assert interrupted.poll() is None
    interrupted.send_signal(signal.SIGTERM)
    assert interrupted.wait(60) in (0, -signal.SIGTERM)
    assert read_run(data) is None
    with loom_up(data) as up:
        up.call("memory.set", {"value": "The gate code is 4417", "key": "gate"})
        before = up.token
        assert up.stop(signal.SIGINT) == 0
    assert read_run(data) is None
    # Names that Kubernetes gives every container, which are no settings of ours.
    injected = environment(LOOM_MEMORY_SERVICE_HOST="10.0.0.1", LOOM_MEMORY_PORT="tcp://10.0.0.1:50053")
    with loom_up(data, env=injected) as up:
        assert up.call("memory.search", {"query": "gate code"})["hits"][0]["memory"]["key"] == "gate"
        refused = up.post("memory.get", {"key": "gate"}, token=before)
        assert refused.status_code == 401
        assert refused.json()["error"]["code"] == "TOKEN_REVOKED"
        assert up.stop(signal.SIGTERM) == 0
    assert read_run(data) is None


def test_a_taken_port_is_one_line_that_names_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run_loom("up", "--data-dir", tmp_path / "data", "--port", port)
    assert done.returncode == 1
    assert port in one_line(done.stderr)


def test_a_data_directory_that_is_a_file_is_one_line_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("not a directory")
    done = run_loom("up", "--data-dir", path, "--port", "0")
    assert done.returncode == 1
    assert str(path) in one_line(done.stderr)
    assert path.read_text() == "not a directory"


def test_an_unknown_variable_stops_the_start_with_the_nearest_known_name(tmp_path: Path) -> None:
    done = run_loom("up", "--data-dir", tmp_path / "data", "--port", "0", env=environment(LOOM_LOG_LEVLE="debug"))
    assert done.returncode == 1
    line = one_line(done.stderr)
    assert "LOOM_LOG_LEVLE" in line
    assert "LOOM_LOG_LEVEL" in line


def test_a_bad_value_stops_the_start_and_names_the_variable(tmp_path: Path) -> None:
    done = run_loom("up", "--data-dir", tmp_path / "data", "--port", "0", env=environment(LOOM_LOG_LEVEL="loud"))
    assert done.returncode == 1
    assert "LOOM_LOG_LEVEL" in one_line(done.stderr)


def test_status_tells_a_running_loom_from_a_stopped_one(up: UpProcess, tmp_path: Path) -> None:
    stopped = run_loom("status", "--data-dir", tmp_path, "--json")
    assert stopped.returncode == 1
    assert json.loads(stopped.stdout)["state"] == "stopped"
    running = run_loom("status", "--data-dir", up.data_dir, "--json")
    assert running.returncode == 0
    state = json.loads(running.stdout)
    assert state["state"] == "ok"
    assert {problem["code"] for problem in state["problems"]} >= {"fake_llm"}
    assert httpx.get(f"{up.http_url}/v1/health/ready").status_code == 200


def test_commands_without_a_running_loom_are_one_line_that_says_how_to_start_one(tmp_path: Path) -> None:
    for command in (["memory", "search", "tea"], ["memory", "set", "tea"], ["token", "list"]):
        done = run_loom(*command, "--data-dir", tmp_path / "none")
        assert done.returncode == 1
        assert "loom up" in one_line(done.stderr)
