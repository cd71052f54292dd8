"""`POST /v1/{op}`: one route for every operation of the contract."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from google.protobuf.message import Message
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from loom_common.errors import Cancelled, LoomError
from loom_gateway.calls.caller import Caller, Transport, caller_of
from loom_gateway.calls.dispatch import Dispatcher
from loom_gateway.contract.answers import render
from loom_gateway.contract.catalogue import Catalogue, PublicOp
from loom_gateway.contract.strict_json import parse_json_object
from loom_gateway.http.answers import error_response, json_response
from loom_gateway.http.body import read_json_body
from loom_gateway.http.departures import departure_of
from loom_gateway.http.edge import REQUEST_ID_STATE, ROUTE_STATE
from loom_gateway.http.lines import MAX_IMPORT_BYTES, LineIntake, send_lines
from loom_gateway.http.streams import send_events

T = TypeVar("T")
Read = Callable[[], Awaitable[Message]]


class OperationRoutes:
    """Answers calls of operations; an ASGI application for the route `/v1/{op}`."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        catalogue: Catalogue,
        *,
        max_body_bytes: int,
        max_import_bytes: int = MAX_IMPORT_BYTES,
    ) -> None:
        self._dispatcher = dispatcher
        self._intake = LineIntake(dispatcher, max_bytes=max_import_bytes)
        self._catalogue = catalogue
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one call."""
        headers = Headers(scope=scope)
        request_id: str = scope["state"][REQUEST_ID_STATE]
        caller = caller_of(headers, Transport.HTTP, request_id)
        name: str = scope["path_params"]["op"]
        op = self._catalogue.get(name) or self._catalogue.streams.get(name)
        started = _Started(send)
        try:
            if op is None:
                raise self._dispatcher.refuse_unknown(name, caller)
            scope["state"][ROUTE_STATE] = op.name
            if op.takes_lines:
                await self._intake.answer(op, caller, scope, receive, started)
                return
            if op.spec.response_streaming:
                await self._stream(op, caller, scope, receive, started)
                return
            answer = await self._answer(op, caller, scope, receive)
            response = json_response(render(answer))
        except LoomError as error:
            if started.yet:
                return  # told in the stream
            response = error_response(error, request_id)
        await response(scope, receive, send)

    async def _answer(self, op: PublicOp, caller: Caller, scope: Scope, receive: Receive) -> Message:
        return await self._while_connected(lambda read: self._dispatcher.run(op, caller, read), op, scope, receive)

    async def _stream(self, op: PublicOp, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        async def serve(read: Read) -> None:
            async with self._dispatcher.stream(op, caller, read) as messages:
                await (send_lines if op.sends_lines else send_events)(messages, send, caller.request_id)

        await self._while_connected(serve, op, scope, receive)

    async def _while_connected(
        self,
        work: Callable[[Read], Coroutine[Any, Any, T]],
        op: PublicOp,
        scope: Scope,
        receive: Receive,
    ) -> T:
        """Returns the answer; a client that goes away ends the work, as one does over gRPC."""
        headers, departure = Headers(scope=scope), departure_of(scope, receive)
        task, gone = asyncio.current_task(), False
        assert task is not None, "an application is called in a task"

        def leave() -> None:
            nonlocal gone
            gone = True
            task.cancel()

        async def read() -> Message:
            body = await read_json_body(headers, receive, limit_bytes=self._max_body_bytes)
            # Whoever reads the body hears of it until then.
            departure.listen(leave)
            return op.reader.read(parse_json_object(body))

        try:
            return await work(read)
        except asyncio.CancelledError:
            if gone and task.uncancel() == 0:
                raise Cancelled("The client went away.") from None
            raise
        finally:
            departure.end()


class _Started:
    """Passes an answer on and knows whether it has begun."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.yet = False

    async def __call__(self, message: Any) -> None:  # Any: as ASGI types messages
        self.yet = True
        await self._send(message)
