"""`/mcp`: what a request must show before the protocol sees it."""

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from loom_common.errors import LoomError, MalformedRequest
from loom_gateway.calls.caller import Caller, Transport, caller_of
from loom_gateway.calls.dispatch import Dispatcher
from loom_gateway.contract.catalogue import Catalogue
from loom_gateway.http.answers import error_response, method_refused
from loom_gateway.http.body import read_json_body
from loom_gateway.http.edge import REQUEST_ID_STATE, ROUTE_STATE
from loom_gateway.mcp.connection import Connection
from loom_gateway.mcp.intake import take_in
from loom_gateway.mcp.loading import LazyProtocol
from loom_gateway.mcp.toolsets import Toolset, toolset_named

if TYPE_CHECKING:
    from loom_gateway.mcp.protocol import Protocol

TOOLSET_HEADER: Final = "x-loom-toolset"
TOOLSET_PARAMETER: Final = "toolset"


class McpEndpoint:
    """An ASGI application for one path."""

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

        def load() -> "Protocol":
            from loom_gateway.mcp.protocol import Protocol  # here: see `LazyProtocol`

            return Protocol(dispatcher, catalogue, version=version, max_body_bytes=max_body_bytes)

        self._protocol = LazyProtocol(load)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serves while entered; can be entered once."""
        async with self._protocol.running():
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
        protocol = await self._protocol.get()
        try:
            body = await read_json_body(request.headers, receive, limit_bytes=self._max_body_bytes)
            taken = take_in(body)
        except MalformedRequest as error:
            await protocol.unreadable(error, caller.request_id)(scope, receive, send)
            return
        except LoomError as error:
            await error_response(error, caller.request_id)(scope, receive, send)
            return
        connection = Connection(caller, toolset, taken.fault)
        await protocol.answer(connection, scope, _replayed(taken.body, receive), send)

    def _toolset(self, scope: Scope, headers: Headers) -> Toolset:
        named = Request(scope).query_params.get(TOOLSET_PARAMETER) or headers.get(TOOLSET_HEADER)
        return toolset_named(named) if named else self._default_toolset


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
