"""Runs one operation for a client: cancellable by it, and with word of how it goes on where the client wants it."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import mcp_types as types
from google.protobuf.message import Message
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import JsonValue
from starlette.requests import Request

from loom_common.errors import LoomError, Reason
from loom_common.telemetry import observe
from loom_gateway.calls.caller import NAMESPACE_HEADER, Caller
from loom_gateway.calls.dispatch import Dispatcher
from loom_gateway.contract.catalogue import Catalogue, PublicOp
from loom_gateway.mcp.connection import CONNECTION_STATE, Connection
from loom_gateway.mcp.errors import error_object, worded
from loom_gateway.mcp.notices import tell

Context = ServerRequestContext[Any, Request]  # Any: the protocol's lifespan state, which is not used

# Source: chosen. Clients give up on a silent call after a minute or so; a word every few seconds is enough.
BEAT_S: Final = 5.0
_CANCELLED: Final = -32800
"""The code that the official transport answers a cancelled call with."""
_NOT_FOUND_BEFORE: Final = -32002
"""What revisions with a handshake answer for a resource that is not there; later ones say `INVALID_PARAMS`."""


def connection_of(context: Context) -> Connection:
    """Returns what the endpoint knows of the request."""
    assert context.request is not None, "served over HTTP"
    found = context.request.scope["state"][CONNECTION_STATE]
    assert isinstance(found, Connection), "set by the endpoint"
    return found


class OpCaller:
    """Calls operations in the name of clients."""

    def __init__(self, dispatcher: Dispatcher, catalogue: Catalogue, *, beat_s: float = BEAT_S) -> None:
        """Takes what answers.

        Args:
            dispatcher: The way to the services.
            catalogue: The operations.
            beat_s: Units: seconds between two words on a call that goes on.
        """
        self._dispatcher = dispatcher
        self._catalogue = catalogue
        self._beat_s = beat_s

    async def run(
        self,
        context: Context,
        op: PublicOp,
        read: Callable[[], Awaitable[Message]],
        label: str,
        *,
        caller: Caller | None = None,
    ) -> Message:
        """Returns the answer of a call.

        Args:
            context: The request.
            op: Operation to call.
            read: Reads the operation's request.
            label: Name of the tool, for metrics.
            caller: Who asks; None for the connection's caller as it is.

        Raises:
            LoomError: Why it is not answered.
            MCPError: The client cancelled it.
        """
        connection = connection_of(context)
        started_s, outcome = time.monotonic(), "ok"
        asking = caller or connection.caller
        work = asyncio.create_task(self._dispatcher.run(op, asking, read), name=f"mcp {op.name}")
        work.add_done_callback(_looked_at)
        try:
            with connection.session.running(context.request_id, work):
                async with self._beats(context, op):
                    return await _joined(work)
        except LoomError as error:
            outcome = error.reason.value
            raise
        except (MCPError, asyncio.CancelledError):
            outcome = Reason.CANCELLED.value
            raise
        finally:
            # One name for whatever has no tool of its own: names of callers' making must not reach the metrics.
            observe("loom.mcp.tool.duration", time.monotonic() - started_s, tool=label, outcome=outcome)
            await tell(context, connection.session, op.name, outcome, time.monotonic() - started_s)

    async def read(self, context: Context, name: str, arguments: Mapping[str, JsonValue]) -> Message:
        """Returns the answer of an operation that a list or a resource is made of.

        A namespace among the arguments stands for itself: an address names one whatever the connection's header says.

        Raises:
            MCPError: It is not answered.
        """
        op, caller = self._catalogue[name], connection_of(context).caller
        if "namespace" in arguments:
            kept = {header: value for header, value in caller.headers.items() if header != NAMESPACE_HEADER}
            caller = replace(caller, headers=kept)

        async def request() -> Message:
            return op.reader.read(arguments)

        try:
            return await self.run(context, op, request, "resource", caller=caller)
        except LoomError as error:
            raise protocol_error(error, connection_of(context)) from error

    @contextlib.asynccontextmanager
    async def _beats(self, context: Context, op: PublicOp) -> AsyncIterator[None]:
        """Reports how long the call has run, where the client asked for progress."""
        if context.meta is None or context.meta.get("progress_token") is None:
            yield
            return
        beating = asyncio.create_task(self._beat(context, op.name))
        beating.add_done_callback(_looked_at)
        try:
            yield
        finally:
            beating.cancel()
            await asyncio.wait({beating})

    async def _beat(self, context: Context, name: str) -> None:
        started_s = time.monotonic()
        await context.session.report_progress(0, None, f"{name} has begun")
        while True:
            await asyncio.sleep(self._beat_s)
            elapsed_s = time.monotonic() - started_s
            await context.session.report_progress(round(elapsed_s, 1), None, f"{name} has run for {elapsed_s:.0f} s")


def _looked_at(task: "asyncio.Task[object]") -> None:
    """Takes note of how a task ended: its client may have gone, and nobody else will ask."""
    if not task.cancelled():
        task.exception()


async def _joined(work: "asyncio.Task[Message]") -> Message:
    """Waits for the call; ends it where whoever waits is ended, and tells apart a client that cancelled it alone."""
    try:
        await asyncio.wait({work})
    except asyncio.CancelledError:
        work.cancel()
        await asyncio.wait({work})
        raise
    if work.cancelled():
        raise MCPError(_CANCELLED, "The call was cancelled.")
    return work.result()


def protocol_error(error: LoomError, connection: Connection) -> MCPError:
    """Returns a refusal as the protocol's own error, for requests that have no result to carry one."""
    code = types.INVALID_PARAMS if error.row.http < 500 else types.INTERNAL_ERROR
    request_id = connection.caller.request_id
    return MCPError(code, f"{error.reason.value}: {worded(error)}", {"error": error_object(error, request_id)})


def not_found(context: Context, uri: str) -> MCPError:
    """Returns the protocol's error for a resource that is not there, or not for this caller."""
    code = _NOT_FOUND_BEFORE if context.protocol_version < "2026" else types.INVALID_PARAMS
    return MCPError(code, "There is no such resource.", {"uri": uri})
