"""`loom status`: whether Loom runs on a data directory, and what its operator should know."""

from pathlib import Path
from typing import Any, Final

import typer

from loom_cli import options, run_file
from loom_cli.console import OUT, print_json

# Source: chosen. Health answers from memory and one probe of the database.
TIMEOUT_S: Final = 10.0


def status(data_dir: options.DataDir = None, as_json: options.AsJson = False) -> None:
    """Tells whether Loom runs, where, and with which problems. Ends with 0 when it runs and answers, else 1."""
    state = read_state(options.directory(data_dir))
    if as_json:
        print_json(state)
    else:
        _print_state(state)
    raise typer.Exit(0 if state["state"] in ("ok", "degraded") else 1)


def read_state(data_dir: Path) -> dict[str, Any]:
    """Returns the state as `loom status --json` prints it: `state` is `ok`, `degraded`, `unreachable` or `stopped`."""
    run = run_file.read(data_dir)
    if run is None:
        return {"state": "stopped", "data_dir": str(data_dir), "problems": []}
    import httpx  # here: `loom --help` need not wait for it

    found: dict[str, Any] = {
        "data_dir": str(data_dir),
        "pid": run.pid,
        "http_url": run.http_url,
        "mcp_url": run.mcp_url,
        "grpc": dict(run.grpc),
    }
    try:
        health = httpx.get(f"{run.http_url}/v1/health", timeout=TIMEOUT_S, trust_env=False).json()
    except (httpx.HTTPError, ValueError) as error:
        problem = {
            "code": "gateway_unreachable",
            "severity": "error",
            "message": f"the gateway does not answer ({type(error).__name__})",
        }
        return {"state": "unreachable", **found, "problems": [problem]}
    return {"state": health.get("status", "degraded"), **found, **{k: v for k, v in health.items() if k != "status"}}


def _print_state(state: dict[str, Any]) -> None:
    OUT.print(f"state     {state['state']}", markup=False)
    for name in ("http_url", "mcp_url", "pid", "version", "data_dir"):
        if name in state:
            OUT.print(f"{name.removesuffix('_url'):<9} {state[name]}", markup=False)
    for problem in state["problems"]:
        OUT.print(
            f"{problem.get('severity', 'warning'):<9} {problem.get('code')}: {problem.get('message')}", markup=False
        )
    if state["state"] == "stopped":
        OUT.print("Start it with `loom up`.", style="dim")
