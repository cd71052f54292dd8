"""The protocol's own transport and server, put together; importing this loads the protocol's libraries."""

import contextlib
from collections.abc import AsyncIterator

import mcp_types as types
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import JsonValue
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from loom_common.errors import LoomError
from loom_gateway.calls.dispatch import Dispatcher
from loom_gateway.contract.catalogue import Catalogue
from loom_gateway.http.answers import json_response
from loom_gateway.mcp.connection import CONNECTION_STATE, Connection
from loom_gateway.mcp.errors import error_object
from loom_gateway.mcp.intake import WrongEnvelope
from loom_gateway.mcp.server import McpServer


class Protocol:
    """Answers messages that the endpoint let in.

    Every POST is complete in itself: there are no sessions, so any replica answers any request. The official
    transport serves both eras of the protocol, with and without a handshake.
    """

    def __init__(self, dispatcher: Dispatcher, catalogue: Catalogue, *, version: str, max_body_bytes: int) -> None:
        server = McpServer(dispatcher, catalogue, version=version).protocol

        def transport(*, streams: bool) -> StreamableHTTPSessionManager:
            return StreamableHTTPSessionManager(
                server,
                json_response=not streams,
                stateless=True,
                # Hosts and origins are checked for every path of the gateway alike, before this one is reached.
                security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
                max_request_body_size=max_body_bytes,
            )

        # One answers with JSON alone, the other with a stream of events where there is something to tell before the
        # result: plain JSON is what proxies and simple clients take, and there is nothing to tell of most calls.
        self._plain = transport(streams=False)
        self._streaming = transport(streams=True)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serves while entered; can be entered once."""
        async with self._plain.run(), self._streaming.run():
            yield

    async def answer(
        self, connection: Connection, scope: Scope, receive: Receive, send: Send, *, streams: bool
    ) -> None:
        """Answers one message, on a stream of events or as JSON."""
        scope["state"][CONNECTION_STATE] = connection
        manager = self._streaming if streams else self._plain
        await manager.handle_request(scope, receive, send)

    @staticmethod
    def unreadable(error: LoomError, request_id: str) -> Response:
        """Returns the protocol's own answer to what is no message, with the error object beside it."""
        wrong = error if isinstance(error, WrongEnvelope) else None
        failure: dict[str, JsonValue] = {
            "code": types.PARSE_ERROR if wrong is None else types.INVALID_REQUEST,
            "message": error.message,
            "data": {"error": error_object(error, request_id)},
        }
        answer: dict[str, JsonValue] = {"jsonrpc": "2.0", "id": wrong.id if wrong else None, "error": failure}
        return json_response(answer, status=error.row.http)
