"""`loom mcp`: clients that start their servers themselves, with the official one."""

import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError
from support.up import LOOM, UpProcess, environment, run_loom


@asynccontextmanager
async def started(up: UpProcess, mode: str, *options: str, **variables: str) -> AsyncIterator[Client]:
    where = [] if variables else ["--data-dir", str(up.data_dir)]
    server = StdioServerParameters(command=str(LOOM), args=["mcp", *where, *options], env=environment(**variables))
    async with Client(stdio_client(server), mode=mode) as client:
        yield client


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_desktop_client_of_either_era_does_all_that_one_over_http_does(up: UpProcess, mode: str) -> None:
    key = f"stdio/{mode} é"
    async with started(up, mode) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names[0] == "loom_search"
        stored = await client.call_tool("memory_set", {"key": key, "value": f"Ana drinks green tea ({mode})"})
        assert not stored.is_error
        found: Any = (await client.call_tool("loom_search", {"query": "what does Ana drink?"})).structured_content
        assert key in [hit["memory"]["key"] for hit in found["memory"]["hits"]]
        uris = [resource.uri for resource in (await client.list_resources()).resources]
        uri = next(uri for uri in uris if "stdio" in uri and mode[:4] in uri)
        assert "green tea" in str((await client.read_resource(uri)).contents)
        assert (await client.get_prompt("recall", {"question": "what does Ana drink?"})).messages
        told: list[str | None] = []

        async def progress(_done: float, _total: float | None, message: str | None) -> None:
            told.append(message)

        await client.call_tool("memory_get", {"key": key}, progress_callback=progress)
        assert told[:1] == ["memory.get has begun"]
        with pytest.raises(MCPError):
            await client.call_tool("nonsense", {})
        assert not (await client.call_tool("memory_delete", {"key": key})).is_error


async def test_a_client_is_pointed_at_a_loom_by_variables_and_at_a_toolset_by_an_option(up: UpProcess) -> None:
    variables = {"LOOM_BASE_URL": up.http_url, "LOOM_API_KEY": up.token}
    async with started(up, "auto", "--toolset", "assistant", **variables) as client:
        assert "memory_set" not in [tool.name for tool in (await client.list_tools()).tools]


def test_a_pipe_gets_its_answers_and_an_error_for_what_is_no_message(up: UpProcess) -> None:
    sent = (
        b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n{"jsonrpc": "2.0", "method": "notifications/initialized"}\nx\n'
    )
    done = subprocess.run(
        [LOOM, "mcp", "--data-dir", up.data_dir], input=sent, env=environment(), capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted((answer["id"] is None, "result" in answer) for answer in answers) == [(False, True), (True, False)]


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({}, "no Loom runs on"),
        ({"LOOM_BASE_URL": "http://127.0.0.1:9"}, "LOOM_API_KEY"),
        ({"LOOM_BASE_URL": "http://127.0.0.1:9", "LOOM_API_KEY": "x"}, "no Loom answers at http://127.0.0.1:9"),
    ],
)
def test_without_a_loom_it_says_so_in_one_line(tmp_path: Path, variables: dict[str, str], says: str) -> None:
    done = run_loom("mcp", "--data-dir", tmp_path, env=environment(**variables))
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert says in done.stderr


def test_a_token_that_is_not_taken_is_said_in_one_line(up: UpProcess) -> None:
    done = run_loom("mcp", env=environment(LOOM_BASE_URL=up.http_url, LOOM_API_KEY="nonsense"))
    assert done.returncode == 1
    assert "does not take the token" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
