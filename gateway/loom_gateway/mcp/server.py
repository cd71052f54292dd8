"""The tools, as the protocol's low-level server asks for them."""

import time
from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types
from google.protobuf.message import Message
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from pydantic import JsonValue
from starlette.requests import Request

from loom_common.errors import LoomError, UnknownOp
from loom_common.telemetry import observe
from loom_gateway.calls.dispatch import Dispatcher
from loom_gateway.contract.answers import render
from loom_gateway.contract.strict_json import shown
from loom_gateway.mcp.connection import CONNECTION_STATE, Connection
from loom_gateway.mcp.errors import error_object, tool_error
from loom_gateway.mcp.summaries import summary
from loom_gateway.mcp.toolsets import BoundTool, Toolset

_INSTRUCTIONS: Final = (
    "Loom keeps memories for you. Call loom_search first, once per question, before you answer from what you know of "
    "this user or project. Store what will matter later with memory_set: one fact per memory, with a stable key, so "
    "that a changed fact replaces the old one. An empty search means that nothing stored matched, not that nothing "
    "is known."
)

Context = ServerRequestContext[Any, Request]  # Any: the protocol's lifespan state, which is not used


class ToolServer:
    """Lists and calls tools."""

    def __init__(
        self, dispatcher: Dispatcher, toolsets: Mapping[Toolset, Mapping[str, BoundTool]], *, version: str
    ) -> None:
        self._dispatcher = dispatcher
        self._toolsets = toolsets
        self.protocol: Server[Any] = Server(  # Any: as above
            "loom",
            version=version,
            title="Loom",
            instructions=_INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            # No schema has parameters that ride in headers, so there is nothing to check against one.
            get_tool_input_schema=lambda _name: None,
        )

    async def _list_tools(
        self, context: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        bound = self._toolsets[_connection(context).toolset]
        return types.ListToolsResult(tools=[tool.tool for tool in bound.values()])

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        connection = _connection(context)
        bound = self._toolsets[connection.toolset].get(params.name)
        if bound is None:
            raise self._unknown(params.name, connection)
        sent: list[Message] = []

        async def read() -> Message:
            if connection.fault is not None:
                raise connection.fault
            arguments: dict[str, JsonValue] = dict(params.arguments or {})
            sent.append(bound.reader.read(arguments))
            return sent[0]

        started_s, outcome = time.monotonic(), "ok"
        try:
            response = await self._dispatcher.run(bound.op, connection.caller, read)
        except LoomError as error:
            outcome = error.reason.value
            return tool_error(error, connection.caller.request_id)
        finally:
            observe("loom.mcp.tool.duration", time.monotonic() - started_s, tool=params.name, outcome=outcome)
        rendered = render(response)
        text = summary(bound.tool.name, sent[0], response, rendered)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)], structured_content=dict(rendered)
        )

    def _unknown(self, name: str, connection: Connection) -> MCPError:
        error = self._dispatcher.refuse_unknown(name, connection.caller)
        if isinstance(error, UnknownOp):
            error = UnknownOp(
                f"The toolset {connection.toolset.value} has no tool {shown(name)!r}.", detail={"tool": shown(name)}
            )
        return MCPError(types.INVALID_PARAMS, str(error), {"error": error_object(error, connection.caller.request_id)})


def _connection(context: Context) -> Connection:
    assert context.request is not None, "served over HTTP"
    found = context.request.scope["state"][CONNECTION_STATE]
    assert isinstance(found, Connection), "set by the endpoint"
    return found
