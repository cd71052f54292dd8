"""`/mcp`: what a request must show before the protocol sees it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from loom_common.errors import LoomError, MalformedRequest
from loom_gateway.calls.caller import RUN_ID_HEADER, Caller, Transport, caller_of
from loom_gateway.calls.dispatch import Dispatcher
from loom_gateway.contract.catalogue import Catalogue
from loom_gateway.http.answers import error_response, method_refused
from loom_gateway.http.body import read_json_body
from loom_gateway.http.edge import REQUEST_ID_STATE, ROUTE_STATE
from loom_gateway.mcp.connection import Connection
from loom_gateway.mcp.intake import CALL, Intake, take_in
from loom_gateway.mcp.loading import LazyProtocol
from loom_gateway.mcp.sessions import SESSION_HEADER, Session, Sessions, new_label
from loom_gateway.mcp.toolsets import Toolset, toolset_named

if TYPE_CHECKING:
    from loom_gateway.mcp.protocol import Protocol

TOOLSET_HEADER: Final = "x-loom-toolset"
TOOLSET_PARAMETER: Final = "toolset"
"""Names a toolset in the path, `/mcp/coding`, and in the query, `/mcp?toolset=coding`."""

Challenge = Callable[[Request], str]
"""Returns the `WWW-Authenticate` header that tells a client without a good token where to get one."""

_INITIALIZE: Final = "initialize"
_EVENT_STREAM: Final = "text/event-stream"
_UNAUTHENTICATED: Final = 401


class McpEndpoint:
    """An ASGI application for `/mcp` and the paths of the toolsets below it."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        catalogue: Catalogue,
        *,
        version: str,
        default_toolset: Toolset,
        max_body_bytes: int,
        challenge: Challenge | None = None,
    ) -> None:
        self._dispatcher = dispatcher
        self._default_toolset = default_toolset
        self._max_body_bytes = max_body_bytes
        self._challenge = challenge
        self._sessions = Sessions()

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
        request = Request(scope, receive)
        try:
            claims = self._dispatcher.authenticate(caller)
            toolset = self._toolset(request)
        except LoomError as error:
            self._dispatcher.record_refusal(caller, error)
            await error_response(error, request_id, headers=self._told(error, request))(scope, receive, send)
            return
        session = self._sessions.of(claims.jti, headers.get(SESSION_HEADER, ""))
        await self._serve(request, Connection(_labelled(caller, toolset, session), claims, toolset, session), send)

    async def _serve(self, request: Request, connection: Connection, send: Send) -> None:
        scope, receive, caller = request.scope, request.receive, connection.caller
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
        if taken.cancels is not None:
            connection.session.cancel(taken.cancels)
        if taken.method == _INITIALIZE and connection.toolset is not Toolset.ASSISTANT:
            # The assistant's answers are runs of their own, each named by its connection: no session opens another.
            send = _labelling(send, new_label())
        known = replace(connection, fault=taken.fault)
        client = _Client(taken.body, receive)
        streams = _wants_stream(taken, connection.session, request.headers)
        await client.while_there(protocol.answer(known, scope, client.receive, send, streams=streams))

    def _toolset(self, request: Request) -> Toolset:
        named = (
            request.path_params.get(TOOLSET_PARAMETER)
            or request.query_params.get(TOOLSET_PARAMETER)
            or request.headers.get(TOOLSET_HEADER)
        )
        return toolset_named(named) if named else self._default_toolset

    def _told(self, error: LoomError, request: Request) -> dict[str, str]:
        if self._challenge is None or error.row.http != _UNAUTHENTICATED:
            return {}
        return {"WWW-Authenticate": self._challenge(request)}


class _Client:
    """The client of one request, whose going away ends the work for it."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive
        self._gone = asyncio.Event()

    async def receive(self) -> Message:
        """Gives the body once, and then waits for the client to go."""
        body, self._body = self._body, None
        if body is not None:
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def while_there(self, answering: Coroutine[object, object, None]) -> None:
        """Runs what answers until it has, or the client goes."""
        work = asyncio.create_task(answering)
        watch = asyncio.create_task(self._watch())
        try:
            await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                await work
        finally:
            work.cancel()
            watch.cancel()
            await asyncio.wait({work, watch})

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone.set()


def _labelled(caller: Caller, toolset: Toolset, session: Session) -> Caller:
    """Returns the caller with the run that its calls are filed under.

    A session is a run of its own. On the assistant's toolset the header names the run: that of the answer.
    """
    if toolset is Toolset.ASSISTANT or not session.label:
        return caller
    return replace(caller, headers={**caller.headers, RUN_ID_HEADER: session.label})


def _labelling(send: Send, label: str) -> Send:
    """Returns a `send` that gives the client the identifier of its session, where the answer is a good one."""

    async def labelled(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] < 400:
            MutableHeaders(scope=message)[SESSION_HEADER] = label
        await send(message)

    return labelled


def _wants_stream(taken: Intake, session: Session, headers: Headers) -> bool:
    """Returns whether the answer is a stream, on which notices come before the result."""
    if taken.method != CALL or _EVENT_STREAM not in headers.get("accept", ""):
        return False
    return taken.wants_notices or bool(session.log_level)
