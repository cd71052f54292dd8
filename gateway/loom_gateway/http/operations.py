"""`POST /v1/{op}`: one route for every operation of the contract."""

import asyncio

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
from loom_gateway.http.edge import REQUEST_ID_STATE, ROUTE_STATE


class OperationRoutes:
    """Answers calls of operations; an ASGI application for the route `/v1/{op}`."""

    def __init__(self, dispatcher: Dispatcher, catalogue: Catalogue, *, max_body_bytes: int) -> None:
        self._dispatcher = dispatcher
        self._catalogue = catalogue
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one call."""
        headers = Headers(scope=scope)
        request_id: str = scope["state"][REQUEST_ID_STATE]
        caller = caller_of(headers, Transport.HTTP, request_id)
        name: str = scope["path_params"]["op"]
        op = self._catalogue.get(name)
        try:
            if op is None:
                raise self._dispatcher.refuse_unknown(name, caller)
            scope["state"][ROUTE_STATE] = op.name
            answer = await self._answer(op, caller, headers, receive)
            response = json_response(render(answer))
        except LoomError as error:
            response = error_response(error, request_id)
        await response(scope, receive, send)

    async def _answer(self, op: PublicOp, caller: Caller, headers: Headers, receive: Receive) -> Message:
        """Returns the answer; a client that goes away ends the work, as one does over gRPC."""
        body_read = asyncio.Event()

        async def read() -> Message:
            body = await read_json_body(headers, receive, limit_bytes=self._max_body_bytes)
            body_read.set()
            return op.reader.read(parse_json_object(body))

        async def client_gone() -> None:
            await body_read.wait()  # whoever reads the body hears of it until then
            while (await receive())["type"] != "http.disconnect":
                pass

        work = asyncio.create_task(self._dispatcher.run(op, caller, read))
        gone = asyncio.create_task(client_gone())
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise Cancelled("The client went away.")
            return await work
        finally:
            work.cancel()
            gone.cancel()
            await asyncio.wait({work, gone})
