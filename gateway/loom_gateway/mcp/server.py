"""The protocol's server: tools, resources and prompts, as the official low-level server asks for them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import mcp_types as types
from google.protobuf.message import Message
from mcp.server.caching import CacheHint
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from pydantic import JsonValue

from loom_common.errors import LoomError, UnknownOp
from loom_gateway.calls.dispatch import Dispatcher
from loom_gateway.contract.answers import encode
from loom_gateway.contract.catalogue import Catalogue, PublicOp
from loom_gateway.contract.requests import RequestReader
from loom_gateway.contract.strict_json import shown
from loom_gateway.mcp import paging
from loom_gateway.mcp.by_name import CALL_TOOL, LIST_TOOL, OpsByName
from loom_gateway.mcp.calling import Context, OpCaller, connection_of
from loom_gateway.mcp.connection import Connection
from loom_gateway.mcp.errors import error_object, tool_error
from loom_gateway.mcp.lean import structured
from loom_gateway.mcp.prompts import Prompts
from loom_gateway.mcp.resources import Resources, unknown_reference
from loom_gateway.mcp.summaries import READING_POINTER, READING_RULE, has_rule, summary
from loom_gateway.mcp.toolsets import BoundTool, Toolset, tools_of

INSTRUCTIONS: Final = (
    "Loom keeps memories for you. Call loom_search first, once per question, before you answer from what you know of "
    "this user or project. Store what will matter later with memory_set: one fact per memory, with a stable key, so "
    "that a changed fact replaces the old one. An empty search means that nothing stored matched, not that nothing "
    "is known."
)

# What a client may keep for a while: the lists change with a release. Private, for toolsets go by the token's headers.
_FOR_A_WHILE: Final = CacheHint(ttl_ms=60_000, scope="private")


@dataclass(frozen=True, slots=True)
class Roster:
    """One toolset: what it lists, and what it lets a client call by name."""

    bound: Mapping[str, BoundTool]
    by_name: OpsByName

    @property
    def shown(self) -> list[types.Tool]:
        """The tools of `tools/list`, in their order."""
        return [*(tool.tool for tool in self.bound.values()), *self.by_name.tools]


def rosters_of(catalogue: Catalogue) -> Mapping[Toolset, Roster]:
    """Returns every toolset."""
    return {toolset: Roster(tools_of(catalogue, toolset), OpsByName(catalogue, toolset)) for toolset in Toolset}


class McpServer:
    """Answers the protocol's requests.

    Args:
        dispatcher: The way to the services.
        catalogue: The operations.
        version: Version of the build.
    """

    def __init__(self, dispatcher: Dispatcher, catalogue: Catalogue, *, version: str) -> None:
        self._dispatcher = dispatcher
        self._rosters = rosters_of(catalogue)
        self._calls = OpCaller(dispatcher, catalogue)
        self._resources = Resources(self._calls)
        self._prompts = Prompts(self._calls)
        self.protocol: Server[Any] = Server(  # Any: the protocol's lifespan state, which is not used
            "loom",
            version=version,
            title="Loom",
            instructions=INSTRUCTIONS,
            cache_hints={
                "tools/list": _FOR_A_WHILE,
                "prompts/list": _FOR_A_WHILE,
                "resources/templates/list": _FOR_A_WHILE,
            },
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._resources.list,
            on_list_resource_templates=self._resources.templates,
            on_read_resource=self._resources.read,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_completion=self._complete,
            # No schema has parameters that ride in headers, so there is nothing to check against one.
            get_tool_input_schema=lambda _name: None,
        )
        # Revisions with a handshake only, which is why the constructor warns of it; later ones ask on each request.
        self.protocol.add_request_handler("logging/setLevel", types.SetLevelRequestParams, self._set_level)

    async def _list_tools(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        found, cursor = paging.page(self._roster(context).shown, params)
        return types.ListToolsResult(tools=found, next_cursor=cursor)

    async def _list_prompts(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        return self._prompts.list(self._roster(context).bound, params)

    async def _get_prompt(self, context: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        return await self._prompts.get(context, self._roster(context).bound, params)

    async def _complete(self, context: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        found = self._resources.complete(context, params) or self._prompts.complete(params)
        if found is None:
            raise unknown_reference()
        return types.CompleteResult(completion=found)

    async def _set_level(self, context: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        connection_of(context).session.log_level = params.level
        return types.EmptyResult()

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        connection, roster = connection_of(context), self._roster(context)
        arguments: dict[str, JsonValue] = dict(params.arguments or {})
        try:
            if (bound := roster.bound.get(params.name)) is not None:
                return await self._answered(context, bound.op, bound.reader, arguments, params.name)
            if any(params.name == tool.name for tool in roster.by_name.tools):
                return await self._by_name(context, roster.by_name, params.name, arguments)
        except LoomError as error:
            return tool_error(error, connection.caller.request_id)
        raise self._unknown(params.name, connection)

    async def _by_name(
        self, context: Context, ops: OpsByName, name: str, arguments: dict[str, JsonValue]
    ) -> types.CallToolResult:
        connection = connection_of(context)
        try:
            if connection.fault is not None:
                raise connection.fault
            if name == LIST_TOOL:
                return _result(ops.describe(arguments))
            call = ops.call(arguments)
            read = call.read_arguments()
        except LoomError as error:
            # It named no operation that could be called, so there is none that its row could be filed under.
            self._dispatcher.record_refusal(connection.caller, error)
            raise
        result = await self._answered(context, call.op, call.reader, read, CALL_TOOL)
        return result.model_copy(
            update={"structured_content": {"op": call.op.name, "result": result.structured_content or {}}}
        )

    async def _answered(
        self, context: Context, op: PublicOp, reader: RequestReader, arguments: dict[str, JsonValue], label: str
    ) -> types.CallToolResult:
        connection = connection_of(context)
        sent: list[Message] = []

        async def read() -> Message:
            if connection.fault is not None:
                raise connection.fault
            sent.append(reader.read(arguments))
            return sent[0]

        response = await self._calls.run(context, op, read, label)
        rendered = structured(sent[0], response)
        rule = READING_RULE
        if has_rule(response) and connection.session.label:
            rule = READING_POINTER if connection.session.rule_told else READING_RULE
            connection.session.rule_told = True
        return _result(rendered, summary(sent[0], response, rendered, rule=rule))

    def _roster(self, context: Context) -> Roster:
        return self._rosters[connection_of(context).toolset]

    def _unknown(self, name: str, connection: Connection) -> MCPError:
        error = self._dispatcher.refuse_unknown(name, connection.caller)
        if isinstance(error, UnknownOp):
            error = UnknownOp(
                f"The toolset {connection.toolset.value} has no tool {shown(name)!r}.", detail={"tool": shown(name)}
            )
        return MCPError(types.INVALID_PARAMS, str(error), {"error": error_object(error, connection.caller.request_id)})


def _result(content: dict[str, JsonValue], text: str | None = None) -> types.CallToolResult:
    told = encode(content).decode("utf-8") if text is None else text
    return types.CallToolResult(content=[types.TextContent(type="text", text=told)], structured_content=dict(content))
