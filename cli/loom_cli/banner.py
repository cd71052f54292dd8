"""What a start prints: where Loom answers, with which token, and what is real."""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from loom_cli.console import ERR, OUT
from loom_cli.run_file import RunFile


def print_banner(run: RunFile, health: Mapping[str, object], data_dir: Path, link: str) -> None:
    """Prints the banner on standard output and problems on standard error.

    Args:
        run: What was started.
        health: What the gateway says.
        data_dir: The data directory.
        link: The link that signs its owner in, once.
    """
    rows = {
        "HTTP": run.http_url,
        "API page": f"{run.http_url}/docs",
        "MCP": run.mcp_url,
        "gRPC": ", ".join(f"{name} {address}" for name, address in run.grpc.items()),
        "token": f"{run.token}",
        "": f"writer, org {run.org}, namespace {run.namespace}",
        "sign in": f"{link}",
        " ": "for people, once, within 15 minutes; `loom sign-in-link` prints another",
        "embedder": _provider(health.get("embedder")),
        "LLM": _provider(health.get("llm")),
        "data": str(data_dir),
    }
    OUT.print(f"\n[bold]Loom {health.get('version', '')} is running[/]\n")
    for name, value in rows.items():
        OUT.print(f"  {name:<9} ", end="", style="bold")
        OUT.print(value, markup=False)
    OUT.print("\n  Try it:", style="bold")
    OUT.print(
        f"    export LOOM_BASE_URL={run.http_url} LOOM_API_KEY={run.token}\n"
        f"    source {shlex.quote(str(Path(sys.prefix) / 'bin' / 'activate'))}\n"
        '    loom memory set "Ana drinks green tea in the morning" --key ana-drink\n'
        '    loom memory search "what does Ana like to drink?"\n',
        markup=False,
    )
    problems = health.get("problems")
    for problem in problems if isinstance(problems, list) else []:
        ERR.print(f"  {problem.get('severity', 'warning')}: {problem.get('message')}", style="yellow", markup=False)
    ERR.print("Ctrl-C stops it.", style="dim")


def _provider(fact: object) -> str:
    """Returns a provider as health describes it: its name and model, and whether it is a fake."""
    if not isinstance(fact, Mapping) or not fact.get("known"):
        return "unknown: the service does not answer"
    kind = "real" if fact.get("real") else "FAKE"
    return f"{fact.get('model', 'unknown')} ({kind})"
