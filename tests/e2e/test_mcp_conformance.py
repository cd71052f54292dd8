"""The protocol's own conformance suite against a live Loom, in the newest revision and the one before."""

import asyncio
from pathlib import Path

import pytest
from support.conformance import FOLDER, suite_command
from support.token_proxy import adding_token
from support.up import UpProcess

# Whole scenarios that must pass: without them the list of expected failures could swallow everything.
_PASSED = {
    "2026-07-28": (
        *("tools-list", "resources-list", "prompts-list", "dns-rebinding-protection", "caching"),
        *("http-header-validation", "sep-2164-resource-not-found", "server-sse-multiple-streams"),
    ),
    "2025-11-25": (
        *("server-initialize", "ping", "logging-set-level", "tools-list", "resources-list", "prompts-list"),
        *("dns-rebinding-protection", "server-session-lifecycle"),
    ),
}


@pytest.mark.parametrize("revision", _PASSED)
async def test_every_scenario_of_a_revision_passes_but_those_that_ask_for_the_suites_own_fixtures(
    up: UpProcess, tmp_path: Path, revision: str
) -> None:
    command = await asyncio.to_thread(suite_command)
    expected = FOLDER / f"expected-{revision}.yml"
    async with adding_token(up.http_url, up.token) as url:
        run = await asyncio.create_subprocess_exec(
            *command,
            *("server", "--url", f"{url}/mcp", "--requirements", revision),
            *("--expected-failures", str(expected), "--output-dir", str(tmp_path)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await run.communicate()
    told = printed.decode()
    assert run.returncode == 0, told[-4000:]
    for scenario in _PASSED[revision]:
        assert f"✓ {scenario}:" in told, scenario
