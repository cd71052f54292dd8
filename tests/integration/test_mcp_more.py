"""Beyond tools: resources, prompts, operations by name, sessions, cancelling, and word of how a call goes on."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from support.gateway import GatewayUnderTest, Services, lasting_gateway

from loom.memory.v1 import knowledge_pb2, memory_pb2
from loom_common.auth.claims import NamespaceGrant, Role
from loom_gateway.mcp.summaries import READING_POINTER, READING_RULE

LEGACY, MODERN = "legacy", "2026-07-28"
BOTH = pytest.mark.parametrize("mode", [LEGACY, MODERN])


__all__ = ["lasting_gateway"]

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def gateway(lasting_gateway: GatewayUnderTest) -> GatewayUnderTest:
    lasting_gateway.forget()
    lasting_gateway.services.replies["memory.list"] = lambda request: listed(lasting_gateway.services, request)
    return lasting_gateway


def listed(services: Services, request: Any) -> memory_pb2.ListMemoriesResponse:
    """Answers like the service: pages of a namespace's memories, two to a page."""
    held = [memory for memory in services.memories.values() if memory.namespace == request.namespace]
    begin = int(request.page_token or 0)
    rest = str(begin + 2) if begin + 2 < len(held) else ""
    return memory_pb2.ListMemoriesResponse(memories=held[begin : begin + 2], next_page_token=rest)


@asynccontextmanager
async def connected(
    gateway: GatewayUnderTest, mode: str, *, path: str = "/mcp", token: str = "", **options: Any
) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token or gateway.token()}", **options.pop("headers", {})}
    async with httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http:
        transport = streamable_http_client(f"{gateway.url}{path}", http_client=http)
        async with Client(transport, mode=mode, **options) as client:
            yield client


def store(gateway: GatewayUnderTest, namespace: str, *keys: str) -> None:
    for key in keys:
        gateway.services.memories[key] = memory_pb2.Memory(
            namespace=namespace, key=key, value=f"what {key} says", kind="fact", importance=0.5, version=1
        )


@BOTH
async def test_a_client_lists_resources_of_every_namespace_that_its_token_names_page_by_page(
    gateway: GatewayUnderTest, mode: str
) -> None:
    store(gateway, "team-a", "a/1", "a/2", "a/3")
    store(gateway, "team-b", "b 1")
    store(gateway, "team-c", "not-mine")
    grants = tuple(NamespaceGrant(name, Role.VIEWER) for name in ("team-a", "team-b"))
    async with connected(gateway, mode, token=gateway.token(namespaces=grants)) as client:
        found, cursor, pages = [], None, 0
        while True:
            page = await client.list_resources(cursor=cursor)
            found += page.resources
            cursor, pages = page.next_cursor, pages + 1
            if cursor is None:
                break
        assert pages == 4
        assert [resource.uri for resource in found] == [
            "loom://memory/team-a/a%2F1",
            "loom://memory/team-a/a%2F2",
            "loom://memory/team-a/a%2F3",
            "loom://memory/team-b/b%201",
        ]
        read = await client.read_resource(found[0].uri)
        (contents,) = read.contents
        assert isinstance(contents, types.TextResourceContents)
        assert (contents.text, contents.mime_type) == ("what a/1 says", "text/plain")
        assert contents.meta is not None
        assert contents.meta["loom/memory"]["kind"] == "fact"
        template, *others = (await client.list_resource_templates()).resource_templates
        assert [other.name for other in others] == ["document", "outline"]
        assert template.uri_template == "loom://memory/{namespace}/{key}{?user_id,session_id}"
        completed = await client.complete(
            types.ResourceTemplateReference(uri=template.uri_template), {"name": "namespace", "value": "team-"}
        )
        assert completed.completion.values == ["team-a", "team-b"]
    assert {entry.row.op for entry in gateway.ledger.entries} == {"memory.list", "memory.get", "knowledge.list"}
    header = {"X-Loom-Namespace": "team-b"}
    async with connected(gateway, mode, token=gateway.token(namespaces=grants), headers=header) as client:
        assert [resource.name for resource in (await client.list_resources()).resources] == ["b 1"]
        assert (await client.read_resource(found[0].uri)).contents


def document(namespace: str, source_uri: str) -> knowledge_pb2.Document:
    return knowledge_pb2.Document(
        namespace=namespace, source_uri=source_uri, title="A guide", kind="markdown", section_count=2, char_count=90_000
    )


def documents(services: Services) -> None:
    """Answers like the service: one document of two sections, longer than a read."""
    held = document("team-a", "docs/a guide.md")
    sections = [
        knowledge_pb2.DocumentSection(anchor="a-guide", heading="A [guide]\n", level=1, breadcrumb="A guide"),
        knowledge_pb2.DocumentSection(anchor="set up", heading="Set up", level=2, breadcrumb="A guide > Set up"),
    ]

    def listing(request: Any) -> knowledge_pb2.ListDocumentsResponse:
        return knowledge_pb2.ListDocumentsResponse(documents=[held] if request.namespace == held.namespace else [])

    def get(request: Any) -> knowledge_pb2.GetDocumentResponse:
        if (request.namespace, request.source_uri) != (held.namespace, held.source_uri):
            return knowledge_pb2.GetDocumentResponse()
        section = next((one for one in sections if one.anchor == request.section), None)
        answer = knowledge_pb2.GetDocumentResponse(found=True, document=held, section=section)
        answer.start_offset, answer.end_offset = request.offset, min(held.char_count, request.offset + request.limit)
        answer.text = "x" * (answer.end_offset - answer.start_offset)
        if answer.end_offset < held.char_count:
            answer.next_offset = answer.end_offset
        return answer

    services.replies["knowledge.list"] = listing
    services.replies["knowledge.get"] = get
    services.replies["knowledge.outline"] = lambda request: knowledge_pb2.ListDocumentSectionsResponse(
        found=request.source_uri == held.source_uri, document=held, sections=sections
    )


@BOTH
async def test_documents_are_listed_and_read_piece_by_piece_and_by_section(
    gateway: GatewayUnderTest, mode: str
) -> None:
    documents(gateway.services)
    store(gateway, "team-a", "k")
    async with connected(gateway, mode) as client:
        first = await client.list_resources()
        second = await client.list_resources(cursor=first.next_cursor)
        (listed_one,) = second.resources
        assert second.next_cursor is None
        assert listed_one.uri == "loom://document/team-a/docs%2Fa%20guide.md"
        assert (listed_one.name, listed_one.mime_type) == ("docs/a guide.md", "text/markdown")
        pieces, uri = [], listed_one.uri
        while uri:
            (contents,) = (await client.read_resource(uri)).contents
            assert isinstance(contents, types.TextResourceContents)
            assert contents.meta is not None
            assert contents.uri == uri
            pieces.append(len(contents.text))
            uri = contents.meta["loom/document"].get("next_uri", "")
        assert pieces == [64_000, 26_000]
        (outline,) = (await client.read_resource("loom://outline/team-a/docs/a guide.md")).contents
        assert isinstance(outline, types.TextResourceContents)
        top, below = outline.text.split("\n")
        assert top.startswith("- [A (guide)](loom://document/team-a/")
        address = below.removeprefix("  - [Set up](").removesuffix(")")
        (section,) = (await client.read_resource(address)).contents
        assert section.meta is not None
        assert section.meta["loom/document"]["section"] == "A guide > Set up"
        assert section.uri == address
        for gone in (
            "loom://document/team-a/none",
            "loom://document/team-b/docs%2Fa%20guide.md",
            f"{listed_one.uri}?offset=-1",
            f"{listed_one.uri}?offset={'9' * 30}",
            "loom://outline/team-a/none",
        ):
            with pytest.raises(MCPError) as caught:
                await client.read_resource(gone)
            assert caught.value.message == "There is no such resource.", gone
    assert "team-b" not in [seen.request.namespace for seen in gateway.services.seen]


@BOTH
async def test_what_the_token_may_not_read_is_no_resource(gateway: GatewayUnderTest, mode: str) -> None:
    store(gateway, "team-b", "b1")
    async with connected(gateway, mode) as client:
        assert (await client.list_resources()).resources == []
        for uri in ("loom://memory/team-b/b1", "loom://memory/team-a/none", "loom://other/team-a/k", "https://x/y"):
            with pytest.raises(MCPError) as caught:
                await client.read_resource(uri)
            assert caught.value.code == (-32002 if mode == LEGACY else types.INVALID_PARAMS), uri
            assert caught.value.message == "There is no such resource."
        with pytest.raises(MCPError) as caught:
            await client.list_resources(cursor="made-up")
        assert caught.value.code == types.INVALID_PARAMS
    seen = [seen.request.namespace for seen in gateway.services.seen]
    assert "team-b" not in seen


@BOTH
async def test_a_client_lists_prompts_and_fills_them_in(gateway: GatewayUnderTest, mode: str) -> None:
    store(gateway, "team-a", "release-day")
    async with connected(gateway, mode) as client:
        prompts = (await client.list_prompts()).prompts
        assert [prompt.name for prompt in prompts] == ["recall", "save_learned", "tidy"]
        filled = await client.get_prompt("recall", {"question": "what release-day says"})
        content = filled.messages[0].content
        assert isinstance(content, types.TextContent)
        assert "[release-day] (fact) what release-day says" in content.text
        saved = (await client.get_prompt("save_learned", {"about": "releases"})).messages[0].content
        assert isinstance(saved, types.TextContent)
        assert "about releases" in saved.text
        for name, arguments in (("recall", {}), ("recall", {"question": " "}), ("recall", {"x": "y"}), ("none", {})):
            with pytest.raises(MCPError) as caught:
                await client.get_prompt(name, arguments)
            assert caught.value.code == types.INVALID_PARAMS
    async with connected(gateway, mode, path="/mcp/assistant") as client:
        assert [prompt.name for prompt in (await client.list_prompts()).prompts] == ["recall"]


@BOTH
async def test_an_operation_that_is_not_listed_is_called_by_name(gateway: GatewayUnderTest, mode: str) -> None:
    async with connected(gateway, mode) as client:
        described = await client.call_tool("loom_ops", {"op": "memory.set_many"})
        assert described.structured_content is not None
        assert "items" in described.structured_content["input_schema"]["properties"]
        arguments = json.dumps({"items": [{"value": "one"}]})
        done = await client.call_tool("loom_op", {"op": "memory.set_many", "arguments": arguments})
        assert not done.is_error
        assert done.structured_content is not None
        assert done.structured_content["op"] == "memory.set_many"
        assert "results" in done.structured_content["result"]
        for op in ("memory.search", "no.such"):
            refused = await client.call_tool("loom_op", {"op": op, "arguments": '{"query": "x"}'})
            assert refused.is_error
            assert refused.structured_content is not None
            assert refused.structured_content["error"]["code"] == "UNKNOWN_OP"
        wrong = await client.call_tool("loom_op", {"op": "memory.get", "arguments": '{"key": "k", "org": "other"}'})
        assert wrong.structured_content is not None
        assert wrong.structured_content["error"]["code"] == "MALFORMED_REQUEST"
    rows = [(entry.row.op, entry.row.status) for entry in gateway.ledger.entries]
    assert rows == [
        ("memory.set_many", "ok"),
        ("_unknown", "UNKNOWN_OP"),
        ("_unknown", "UNKNOWN_OP"),
        ("memory.get", "MALFORMED_REQUEST"),
    ]


async def test_a_session_is_told_once_how_to_read_and_is_a_run_of_its_own(gateway: GatewayUnderTest) -> None:
    store(gateway, "team-a", "k")
    headers = {"X-Loom-Run-Id": "run-1"}
    async with connected(gateway, LEGACY, headers=headers) as client:
        first, second = [await client.call_tool("loom_search", {"query": "what"}) for _ in range(2)]
    assert [READING_RULE in str(first.content), READING_POINTER in str(first.content)] == [True, False]
    assert [READING_RULE in str(second.content), READING_POINTER in str(second.content)] == [False, True]
    runs = {seen.metadata.get("x-loom-run-id") for seen in gateway.services.seen}
    assert len(runs) == 1
    assert runs.isdisjoint({None, "run-1"})
    gateway.services.seen.clear()
    async with connected(gateway, LEGACY, path="/mcp/assistant", headers=headers) as client:
        for _ in range(2):
            assert READING_RULE in str((await client.call_tool("loom_search", {"query": "what"})).content)
    assert {seen.metadata.get("x-loom-run-id") for seen in gateway.services.seen} == {"run-1"}


class Held:
    """An operation that answers when it is told to, and notes that it was ended."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()
        self.go_on = asyncio.Event()

    async def __call__(self, request: Any) -> memory_pb2.GetMemoryResponse:
        self.begun.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.ended.set()
            raise
        return memory_pb2.GetMemoryResponse(found=False)


@BOTH
async def test_a_call_that_its_client_cancels_ends_behind_the_gateway(gateway: GatewayUnderTest, mode: str) -> None:
    held = gateway.services.replies["memory.get"] = Held()
    async with connected(gateway, mode) as client, asyncio.timeout(60):
        call = asyncio.create_task(client.call_tool("memory_get", {"key": "k"}))
        await held.begun.wait()
        call.cancel()
        await held.ended.wait()
        # It goes on to use the connection, and the answer to the cancelled call has somewhere to come to.
        assert (await client.list_tools()).tools
    assert [entry.row.status for entry in gateway.ledger.entries] == ["CANCELLED"]


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("streams", [False, True])
async def test_a_connection_that_closes_ends_its_call(gateway: GatewayUnderTest, version: str, streams: bool) -> None:
    held = gateway.services.replies["memory.get"] = Held()
    meta: dict[str, Any] = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
        **({"progressToken": 1} if streams else {}),
    }
    params = {"name": "memory_get", "arguments": {"key": "k"}, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": version,
        "Mcp-Method": "tools/call",
        "Mcp-Name": "memory_get",
    }
    async with gateway.client() as http, asyncio.timeout(60):
        call = asyncio.create_task(http.post("/mcp", json=body, headers=headers))
        await held.begun.wait()
        call.cancel()
        await asyncio.wait({call})
        await held.ended.wait()
    assert [entry.row.status for entry in gateway.ledger.entries] == ["CANCELLED"]


async def test_a_client_cancels_its_own_calls_alone(gateway: GatewayUnderTest) -> None:
    held = gateway.services.replies["memory.get"] = Held()
    async with connected(gateway, LEGACY) as first, connected(gateway, LEGACY) as second, asyncio.timeout(60):
        call = asyncio.create_task(first.call_tool("memory_get", {"key": "k"}))
        await held.begun.wait()
        for number in range(12):
            params = types.CancelledNotificationParams(request_id=number)
            await second.session.send_notification(types.CancelledNotification(params=params))
        held.go_on.set()
        assert not (await call).is_error


@BOTH
async def test_a_client_that_asks_is_told_that_its_call_goes_on_and_how_it_ended(
    gateway: GatewayUnderTest, mode: str
) -> None:
    told: list[tuple[float, str | None]] = []
    logged: list[Any] = []
    held = gateway.services.replies["memory.get"] = Held()

    async def progress(done: float, _total: float | None, message: str | None) -> None:
        told.append((done, message))
        held.go_on.set()

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        logged.append((params.level, params.data["op"], params.data["outcome"]))

    meta: Any = {"io.modelcontextprotocol/logLevel": "debug"} if mode == MODERN else None
    async with connected(gateway, mode, logging_callback=log) as client, asyncio.timeout(60):
        if mode == LEGACY:
            await client.session.send_request(
                types.SetLevelRequest(params=types.SetLevelRequestParams(level="debug")), types.EmptyResult
            )
        result = await client.call_tool("memory_get", {"key": "k"}, progress_callback=progress, meta=meta)
        assert not result.is_error
    assert told[0] == (0, "memory.get has begun")
    assert logged == [("debug", "memory.get", "ok")]
