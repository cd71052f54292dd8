"""Every transport gives the same answer, and every port the same refusals."""

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from support.up import UpProcess, eventually, grpcurl

from loom_client import Loom

TOPICS = ("coffee", "tea", "rain", "trains", "bread", "chess", "maps", "wool")
QUERIES = ("coffee in the morning", "which trains run late?", "baking bread", "chess", "a hot cup of coffee")


@pytest.fixture(scope="module")
def notes(up: UpProcess) -> Iterator[list[str]]:
    """Forty notes on eight topics, in the namespace of the start's token."""
    keys = []
    with Loom(up.http_url, up.token) as loom:
        for number in range(40):
            topic = TOPICS[number % len(TOPICS)]
            text = f"Note {number}: Bo wrote about {topic} on day {number}, in the morning"
            keys.append(loom.memory.set(text, key=f"transport-{number}", tags=["transport"]).key)
        # Until the model is measured the gates are the settings', and two answers may go by different ones.
        eventually(lambda: thresholds(up) == "cluster", 30, "thresholds that are measured")
        yield keys
        for key in keys:
            loom.memory.delete(key)


def thresholds(up: UpProcess) -> str:
    """Returns where the gates of a search come from."""
    found = up.call("search.query", {"query": "rain", "explain": True, "namespace_scope": "this"})
    return str(found["memory"]["explanation"]["thresholds"])


async def over_mcp(up: UpProcess, query: str) -> list[str]:
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {up.token}"}, trust_env=False) as http,
        Client(streamable_http_client(f"{up.http_url}/mcp", http_client=http)) as client,
    ):
        answer = await client.call_tool("loom_search", {"query": query, "top_k": 10})
        found: Any = answer.structured_content
        return [hit["memory"]["key"] for hit in found["memory"]["hits"]]


def over_http(up: UpProcess, query: str) -> list[str]:
    found = up.call("search.query", {"query": query, "top_k": 10, "namespace_scope": "this"})
    return [hit["memory"]["key"] for hit in found["memory"]["hits"]]


def over_grpc(up: UpProcess, query: str) -> list[str]:
    body = json.dumps({"query": query, "top_k": 10, "namespace_scope": "this"})
    method = "loom.memory.v1.SearchService/Search"
    done = grpcurl("-H", f"authorization: Bearer {up.token}", "-d", body, up.address("memory"), method)
    assert done.returncode == 0, done.stderr
    return [hit["memory"]["key"] for hit in json.loads(done.stdout)["memory"]["hits"]]


async def test_a_search_has_the_same_ids_in_the_same_order_over_http_mcp_and_grpc(
    up: UpProcess, notes: list[str]
) -> None:
    for query in QUERIES:
        expected = over_http(up, query)
        assert expected, query
        assert over_grpc(up, query) == expected
        assert await over_mcp(up, query) == expected


@pytest.mark.parametrize("service", ["identity", "embedding", "llm", "memory", "insights", "assistant"])
def test_grpcurl_lists_and_describes_every_port_with_its_services(up: UpProcess, service: str) -> None:
    listed = grpcurl(up.address(service), "list")
    assert listed.returncode == 0, listed.stderr
    assert f"loom.{service}.v1." in listed.stdout
    assert "grpc.health.v1.Health" in listed.stdout
    own = next(line for line in listed.stdout.split() if line.startswith(f"loom.{service}.v1."))
    described = grpcurl(up.address(service), "describe", own)
    assert described.returncode == 0, described.stderr
    assert "rpc " in described.stdout


def test_descriptions_carry_the_comments_of_the_contract(up: UpProcess) -> None:
    described = grpcurl(up.address("memory"), "describe", "loom.memory.v1.MemoryService")
    assert "// Finds the memories that best answer a query" in described.stdout


def test_health_answers_without_a_token_on_every_port(up: UpProcess) -> None:
    for service in up.run["grpc"]:
        done = grpcurl(up.address(service), "grpc.health.v1.Health/Check")
        assert json.loads(done.stdout) == {"status": "SERVING"}, (service, done.stderr)


def test_the_gateway_and_the_service_refuse_the_same_call_for_the_same_reason(up: UpProcess) -> None:
    cases: list[tuple[str, str, dict[str, Any], str]] = [
        ("memory.get", "MemoryService/GetMemory", {}, "INVALID_ARGUMENT"),
        ("memory.search", "MemoryService/SearchMemories", {"query": "x", "top_k": 0}, "INVALID_ARGUMENT"),
        ("memory.get", "MemoryService/GetMemory", {"key": "k", "namespace": "not-mine"}, "AUTH_INSUFFICIENT"),
        ("memory.get", "MemoryService/GetMemory", {"key": "k", "org": "not-mine"}, "AUTH_INSUFFICIENT"),
    ]
    for op, method, body, reason in cases:
        over = up.post(op, body).json()["error"]
        direct = grpcurl(
            "-H",
            f"authorization: Bearer {up.token}",
            "-d",
            json.dumps(body),
            up.address("memory"),
            f"loom.memory.v1.{method}",
        )
        assert over["code"] == reason, over
        assert reason in direct.stderr, direct.stderr
        assert over["message"] in direct.stderr
