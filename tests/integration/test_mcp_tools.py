"""The tools as MCP clients see them: the official client in both eras of the protocol, and faults on the wire."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from support.gateway import GatewayUnderTest, lasting_gateway, raising, running_gateway

from loom_common.auth.claims import Role
from loom_common.errors import AuthInsufficient, BackendUnavailable, Unauthenticated
from loom_gateway.contract.catalogue import Catalogue
from loom_gateway.mcp.summaries import READING_RULE
from loom_gateway.mcp.toolsets import Toolset
from loom_memory.domain.fencing import unfenced

__all__ = ["lasting_gateway"]

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def gateway(lasting_gateway: GatewayUnderTest) -> GatewayUnderTest:
    lasting_gateway.forget()
    return lasting_gateway


ERAS = ["legacy", "2026-07-28", "auto"]
DEFAULT_TOOLS = [
    *("loom_search", "memory_set", "memory_get", "memory_list", "memory_delete", "memory_history"),
    *("memory_restore", "memory_inspect", "memory_feedback", "memory_conflicts", "memory_resolve_conflict"),
    *("memory_ask", "memory_brief", "memory_set_from_messages", "context_pack", "loom_ops", "loom_op"),
]


@asynccontextmanager
async def connected(
    gateway: GatewayUnderTest, mode: str = "auto", *, path: str = "/mcp", token: str = "", **headers: str
) -> AsyncIterator[Client]:
    sent = {"Authorization": f"Bearer {token or gateway.token()}", **headers}
    async with httpx2.AsyncClient(headers=sent, timeout=60, trust_env=False) as http:
        transport = streamable_http_client(f"{gateway.url}{path}", http_client=http)
        async with Client(transport, mode=mode) as client:
            yield client


def text_of(result: types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


def message(method: str = "tools/call", **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


async def post(gateway: GatewayUnderTest, body: bytes | dict[str, Any], **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    found = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **headers}
    async with gateway.client() as client:
        return await client.post("/mcp", content=content, headers=found)


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_of_either_era_lists_the_default_tools_and_calls_them(
    gateway: GatewayUnderTest, mode: str
) -> None:
    async with connected(gateway, mode) as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == DEFAULT_TOOLS
        stored = await client.call_tool("memory_set", {"key": "k", "value": "deploy on friday", "kind": "decision"})
        assert not stored.is_error
        assert stored.structured_content is not None
        assert stored.structured_content["version"] == 1
        found = await client.call_tool("loom_search", {"query": "deploy"})
    count, rule, block = text_of(found).split("\n\n")
    assert count == "loom_search 'deploy': 1 memory, 0 profile, 0 knowledge, 0 conversation hit."
    assert rule == READING_RULE
    assert unfenced(block, "memories") == ["[2026-11-30] [k] (decision) deploy on friday"]
    assert found.structured_content is not None
    assert found.structured_content["memory"]["hits"][0]["similarity"] == 0.66
    assert {seen.call.peer_service for seen in gateway.services.seen} == {"gateway"}
    rows = [(entry.row.op, entry.row.transport, entry.row.status) for entry in gateway.ledger.entries]
    assert rows == [("memory.set", "mcp", "ok"), ("search.query", "mcp", "ok")]


async def test_a_search_over_mcp_is_that_over_http_without_what_is_empty_or_stands_in_the_text(
    gateway: GatewayUnderTest,
) -> None:
    async with gateway.client() as http, connected(gateway) as client:
        await http.post("/v1/memory.set", json={"key": "k", "value": "deploy"})
        over_http = await http.post("/v1/search.query", json={"query": "deploy", "namespace_scope": "this"})
        over_mcp = await client.call_tool("loom_search", {"query": "deploy"})
        explained = await client.call_tool("loom_search", {"query": "deploy", "explain": True})
    whole = over_http.json()
    assert explained.structured_content == whole
    hit = whole["memory"]["hits"][0]
    memory = {name: value for name, value in hit["memory"].items() if value not in ("", [], {}, 0, False)}
    lean = {"memory": memory, "score": hit["score"], "similarity": hit["similarity"]}
    assert over_mcp.structured_content == {"memory": {"hits": [lean], "candidates_total": 1}}


async def test_an_empty_search_says_so_and_why(gateway: GatewayUnderTest) -> None:
    async with connected(gateway) as client:
        found = await client.call_tool("loom_search", {"query": "nothing"})
    assert text_of(found).split("\n\n") == [
        "loom_search 'nothing': 0 memory, 0 profile, 0 knowledge, 0 conversation hits.",
        "Memory has no hit: no_match.",
    ]


@pytest.mark.parametrize("toolset", list(Toolset))
async def test_a_toolset_is_listed_at_its_own_address(gateway: GatewayUnderTest, toolset: Toolset) -> None:
    async with connected(gateway, path=f"/mcp/{toolset.value}") as client:
        page = await client.list_tools()
        tools = list(page.tools)
        while page.next_cursor:
            page = await client.list_tools(cursor=page.next_cursor)
            tools += page.tools
    names = [tool.name for tool in tools]
    assert names[0] == "loom_search"
    assert "loom_assistant_ask" not in names
    assert ("memory_search" in names) is (toolset is Toolset.ASSISTANT)
    assert ({"loom_op", "loom_ops"} <= set(names)) is (toolset is not Toolset.ASSISTANT)
    shown = {"query", "top_k", "tags", "bodies", "recipe", "page", "explain"}
    assert set(tools[0].input_schema["properties"]) == shown
    for tool in tools:
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint is (tool.name not in _WRITERS)


_WRITERS = {"loom_op"} | {op.spec.mcp_name for op in Catalogue().values() if not op.spec.read_only}


async def test_a_toolset_is_chosen_by_setting_path_query_or_header(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, toolset=Toolset.ADMIN) as gateway:
        async with connected(gateway) as client:
            assert "token_create" in [tool.name for tool in (await client.list_tools()).tools]
        async with connected(gateway, **{"X-Loom-Toolset": "default"}) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == DEFAULT_TOOLS
        async with connected(gateway, path="/mcp?toolset=coding", **{"X-Loom-Toolset": "default"}) as client:
            assert "memory_set" in [tool.name for tool in (await client.list_tools()).tools]
        async with connected(gateway, path="/mcp/default?toolset=admin") as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == DEFAULT_TOOLS
        async with gateway.client() as http:
            for path in ("/mcp?toolset=nonsense", "/mcp/nonsense"):
                answer = await http.post(path, json=message("ping"))
                assert (answer.status_code, answer.json()["error"]["code"]) == (422, "INVALID_ARGUMENT")


async def test_a_tool_outside_the_toolset_or_unknown_is_refused_by_the_protocol(gateway: GatewayUnderTest) -> None:
    async with connected(gateway) as client:
        for name in ("memory_search", "token_create", "loom_assistant_ask", "nonsense", "memory.set"):
            with pytest.raises(MCPError) as caught:
                await client.call_tool(name, {})
            assert caught.value.error.code == types.INVALID_PARAMS
            assert caught.value.error.data["error"]["code"] == "UNKNOWN_OP"
    assert gateway.services.seen == []
    assert {entry.row.status for entry in gateway.ledger.entries} == {"UNKNOWN_OP"}


@pytest.mark.parametrize(
    ("arguments", "reason", "field"),
    [
        ({}, "INVALID_ARGUMENT", "value"),
        ({"value": 5}, "MALFORMED_REQUEST", "value"),
        ({"value": "x", "no_such": 1}, "MALFORMED_REQUEST", "no_such"),
        ({"value": "x", "userId": "u"}, "MALFORMED_REQUEST", "userId"),
        ({"value": "x", "org": "acme"}, "MALFORMED_REQUEST", "org"),
        ({"value": "x\x00"}, "INVALID_ARGUMENT", "value"),
        ({"value": "x" * 70_000}, "INVALID_ARGUMENT", "value"),
        ({"value": "x", "importance": 7}, "INVALID_ARGUMENT", "importance"),
        ({"value": "x", "tags": ["a", ""]}, "INVALID_ARGUMENT", "tags[1]"),
        ({"value": "x", "expected_version": 2**40}, "INVALID_ARGUMENT", "expected_version"),
    ],
)
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_arguments_are_read_as_strictly_as_http_bodies(
    gateway: GatewayUnderTest, mode: str, arguments: dict[str, Any], reason: str, field: str
) -> None:
    async with connected(gateway, mode) as client:
        result = await client.call_tool("memory_set", arguments)
    assert result.is_error
    assert result.structured_content is not None
    error = result.structured_content["error"]
    assert error["code"] == reason
    assert field in [found["field"] for found in error["detail"]["fields"]]
    assert text_of(result).startswith(reason)
    assert gateway.services.seen == []
    assert [(entry.row.op, entry.row.status, entry.row.refused) for entry in gateway.ledger.entries] == [
        ("memory.set", reason, True)
    ]


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_half_a_surrogate_in_an_argument_is_a_tools_error_that_names_it(
    gateway: GatewayUnderTest, version: str
) -> None:
    meta = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    body = message(name="memory_set", arguments={"value": "a\ud800"}, _meta=meta)
    answer = await post(
        gateway,
        body,
        **{"MCP-Protocol-Version": version, "Mcp-Method": "tools/call", "Mcp-Name": "memory_set"},
    )
    assert answer.status_code == 200, answer.text
    result = answer.json()["result"]
    assert result["isError"] is True
    assert result["structuredContent"]["error"]["code"] == "INVALID_ARGUMENT"
    assert result["structuredContent"]["error"]["detail"]["fields"][0]["field"] == "value"
    assert gateway.services.seen == []


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[" * 10_000 + b"]" * 10_000,
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "memory_set", "arguments": '
        + b"[" * 10_000
        + b"]" * 10_000
        + b"}}",
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "memory_set", '
        b'"arguments": {"value": "a", "value": "b"}}}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": NaN}}',
        b"\xff\xfe",
    ],
    ids=["cut", "nested", "nested arguments", "key twice", "NaN", "no UTF-8"],
)
@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_what_is_no_strict_json_is_the_protocols_parse_error_with_our_reason(
    gateway: GatewayUnderTest, body: bytes, version: str
) -> None:
    answer = await post(gateway, body, **{"MCP-Protocol-Version": version})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == types.PARSE_ERROR
    assert error["data"]["error"]["code"] == "MALFORMED_REQUEST"
    assert gateway.services.seen == []


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(
    ("body", "id_"),
    [
        (b"1", None),
        (b"null", None),
        (b'"text"', None),
        (b"[]", None),
        (b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', None),
        (b'{"id": 1}', 1),
        (b'{"id": "a", "method": "ping"}', "a"),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', 1),
        (b'{"jsonrpc": "2.0", "id": 1, "method": 5}', 1),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]}', 1),
        (b'{"jsonrpc": "2.0", "id": 1, "result": 5}', 1),
        (b'{"jsonrpc": "2.0", "id": 1, "error": {"code": "x"}}', 1),
        *(
            (b'{"jsonrpc": "2.0", "id": %s, "method": "ping"}' % id_, None)
            for id_ in (b"null", b"true", b"1.5", b"1.0", b"[]", b"{}")
        ),
    ],
)
async def test_json_that_is_no_message_is_an_invalid_request_in_words_of_ours(
    gateway: GatewayUnderTest, body: bytes, id_: str | int | None, version: str
) -> None:
    answer = await post(gateway, body, **{"MCP-Protocol-Version": version})
    assert answer.status_code == 400
    told = answer.json()
    assert (told["jsonrpc"], told["id"], told["error"]["code"]) == ("2.0", id_, types.INVALID_REQUEST)
    assert told["error"]["data"]["error"]["code"] == "MALFORMED_REQUEST"
    assert len(told["error"]["message"]) < 100
    assert "pydantic" not in answer.text
    assert gateway.services.seen == []


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc": "2.0", "method": "notifications/initialized"}',
        b'{"jsonrpc": "2.0", "id": 1, "result": {}}',
        b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "unread"}}',
    ],
)
async def test_notifications_and_answers_are_taken_in_silence(gateway: GatewayUnderTest, body: bytes) -> None:
    answer = await post(gateway, body, **{"MCP-Protocol-Version": "2025-11-25"})
    assert (answer.status_code, answer.content) == (202, b"")


async def test_no_token_or_a_bad_one_is_answered_by_http_with_what_to_send(gateway: GatewayUnderTest) -> None:
    async with gateway.client(None) as client:
        for headers in ({}, {"Authorization": "Bearer nonsense"}, {"Authorization": "Basic abc"}):
            answer = await client.post("/mcp", json=message("tools/list"), headers=headers)
            assert answer.status_code == 401
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")
            assert answer.json()["error"]["code"] == "UNAUTHENTICATED"
    rows = [
        (entry.row.org, entry.row.transport, entry.row.status, entry.row.refused) for entry in gateway.ledger.entries
    ]
    assert rows == [("_none", "mcp", "UNAUTHENTICATED", True)] * 3


@pytest.mark.parametrize(
    "error",
    [
        Unauthenticated("OAuth authentication failed with 401."),
        AuthInsufficient("Authentication says unauthorized: 401."),
        BackendUnavailable("OAuth is away.", retry_after_s=3),
    ],
)
async def test_a_tools_error_has_no_word_that_clients_take_for_their_own_sign_in(
    gateway: GatewayUnderTest, error: Any
) -> None:
    gateway.services.replies["memory.get"] = raising(error)
    async with connected(gateway) as client:
        result = await client.call_tool("memory_get", {"key": "k"})
    assert result.is_error
    assert result.structured_content is not None
    for text in (text_of(result), result.structured_content["error"]["message"]):
        assert not re.search(r"401|oauth|authentication|unauthorized", text, re.IGNORECASE), text
    assert result.structured_content["error"]["code"] == error.reason.value


async def test_a_role_that_is_too_small_is_a_tools_error(gateway: GatewayUnderTest) -> None:
    async with connected(gateway, token=gateway.token(Role.VIEWER)) as client:
        result = await client.call_tool("memory_set", {"value": "x"})
    assert result.is_error
    assert result.structured_content is not None
    assert result.structured_content["error"]["code"] == "AUTH_INSUFFICIENT"


async def test_the_code_scope_of_a_connection_goes_on_to_the_service(gateway: GatewayUnderTest) -> None:
    async with connected(gateway, **{"X-Loom-Code-Scope": "acme/repo", "X-Loom-Run-Id": "run-1"}) as client:
        await client.call_tool("memory_get", {"key": "k"})
    seen = gateway.services.seen[-1]
    assert seen.metadata["x-loom-code-scope"] == "acme/repo"
    assert seen.metadata["x-loom-run-id"] == "run-1"


async def test_behind_a_prefix_a_client_connects(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, public_url="http://127.0.0.1:1/loom") as gateway,
        connected(gateway, path="/loom/mcp") as client,
    ):
        assert (await client.call_tool("memory_get", {"key": "k"})).structured_content == {"found": False}


async def test_a_key_with_brackets_stays_one_key_in_the_text(gateway: GatewayUnderTest) -> None:
    async with gateway.client() as http, connected(gateway) as client:
        await http.post("/v1/memory.set", json={"key": "a]b\nc", "value": "deploy"})
        found = await client.call_tool("loom_search", {"query": "deploy"})
    assert "[a%5Db%0Ac]" in text_of(found)


async def test_sql_looking_text_is_stored_as_it_is(gateway: GatewayUnderTest) -> None:
    text = "'; DROP TABLE memory; -- {x:String}"
    async with connected(gateway) as client:
        await client.call_tool("memory_set", {"key": "k", "value": text})
        found = await client.call_tool("memory_get", {"key": "k"})
    assert found.structured_content is not None
    assert found.structured_content["memory"]["value"] == text
    assert json.loads(text_of(found)) == found.structured_content
