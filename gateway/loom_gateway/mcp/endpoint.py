"""`/mcp`: what a request must show before the protocol sees it, and the protocol's transport behind it."""

import contextlib
from collections.abc import AsyncIterator
from typing import Final

import mcp_types as types
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import JsonValue
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from loom_common.errors import LoomError, MalformedRequest
from loom_gateway.calls.caller import Caller, Transport, caller_of
from loom_gateway.calls.dispatch import Dispatcher
from loom_gateway.contract.catalogue import Catalogue
from loom_gateway.http.answers import error_response, json_response, method_refused
from loom_gateway.http.body import read_json_body
from loom_gateway.http.edge import REQUEST_ID_STATE, ROUTE_STATE
from loom_gateway.mcp.errors import error_object
from loom_gateway.mcp.intake import WrongEnvelope, take_in
from loom_gateway.mcp.server import CONNECTION_STATE, Connection, ToolServer
from loom_gateway.mcp.toolsets import Toolset, tools_of, toolset_named

TOOLSET_HEADER: Final = "x-loom-toolset"
TOOLSET_PARAMETER: Final = "toolset"


class McpEndpoint:
    """An ASGI application for one path.

    Every POST is complete in itself: there are no sessions, so any replica answers any request. The official
    transport serves both eras of the protocol, with and without a handshake.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        catalogue: Catalogue,
        *,
        version: str,
        default_toolset: Toolset,
        max_body_bytes: int,
    ) -> None:
        self._dispatcher = dispatcher
        self._default_toolset = default_toolset
        self._max_body_bytes = max_body_bytes
        toolsets = {toolset: tools_of(catalogue, toolset) for toolset in Toolset}
        self._manager = StreamableHTTPSessionManager(
            ToolServer(dispatcher, toolsets, version=version).protocol,
            json_response=True,
            stateless=True,
            # Hosts and origins are checked for every path of the gateway alike, before this one is reached.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            max_request_body_size=max_body_bytes,
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serves while entered; can be entered once."""
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one message."""
        request_id: str = scope["state"][REQUEST_ID_STATE]
        scope["state"][ROUTE_STATE] = "mcp"
        if scope["method"] != "POST":
            await method_refused(request_id, "POST")(scope, receive, send)
            return
        headers = Headers(scope=scope)
        caller = caller_of(headers, Transport.MCP, request_id)
        try:
            self._dispatcher.authenticate(caller)
            toolset = self._toolset(scope, headers)
        except LoomError as error:
            self._dispatcher.record_refusal(caller, error)
            await error_response(error, request_id)(scope, receive, send)
            return
        await self._serve(Request(scope, receive), caller, toolset, send)

    async def _serve(self, request: Request, caller: Caller, toolset: Toolset, send: Send) -> None:
        scope, receive = request.scope, request.receive
        try:
            body = await read_json_body(request.headers, receive, limit_bytes=self._max_body_bytes)
            taken = take_in(body)
        except MalformedRequest as error:
            await _unreadable(error, caller.request_id)(scope, receive, send)
            return
        except LoomError as error:
            await error_response(error, caller.request_id)(scope, receive, send)
            return
        scope["state"][CONNECTION_STATE] = Connection(caller, toolset, taken.fault)
        await self._manager.handle_request(scope, _replayed(taken.body, receive), send)

    def _toolset(self, scope: Scope, headers: Headers) -> Toolset:
        named = Request(scope).query_params.get(TOOLSET_PARAMETER) or headers.get(TOOLSET_HEADER)
        return toolset_named(named) if named else self._default_toolset


def _unreadable(error: LoomError, request_id: str) -> Response:
    """Returns the protocol's own answer to what is no message, with the error object beside it."""
    wrong = error if isinstance(error, WrongEnvelope) else None
    failure: dict[str, JsonValue] = {
        "code": types.PARSE_ERROR if wrong is None else types.INVALID_REQUEST,
        "message": error.message,
        "data": {"error": error_object(error, request_id)},
    }
    return json_response({"jsonrpc": "2.0", "id": wrong.id if wrong else None, "error": failure}, status=error.row.http)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Returns a source that gives the body again and then what follows it, such as the client's going away."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
