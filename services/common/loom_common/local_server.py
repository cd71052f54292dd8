"""Calls within one process: a server that is asked without a socket, and those that a process holds.

Where all services run in one process, a call between two of them over loopback is mostly the work of two gRPC ends.
Here the same chain of interceptors and the same handler are called directly, in a task of their own and with copies of
the messages. Only what is usual goes this way: whatever a socket would treat in a way of its own, such as a message
that is too large or metadata that no caller of ours sends, goes over the socket and meets it there.
"""

import asyncio
import contextvars
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeAlias

import grpc
import grpc.aio
import structlog
from google.protobuf import message_factory
from google.protobuf.message import Message

from loom_common import headers
from loom_common.attribution import ATTRIBUTION_KEY
from loom_common.local_context import LocalContext, Pairs
from loom_common.ops import op_by_method

Behavior: TypeAlias = Callable[[Any, Any], Awaitable[Any]]

_TEXT_KEYS: Final = frozenset(
    {
        headers.AUTHORIZATION,
        headers.SERVICE,
        headers.NAMESPACE,
        headers.RUN_ID,
        headers.REQUEST_ID,
        headers.IDEMPOTENCY_KEY,
        "traceparent",
        "tracestate",
    }
)
# What HTTP/2 counts for each field beside its name and value.
_FIELD_BYTES: Final = 32

_log = structlog.get_logger(__name__)


class LocalServer:
    """One server's handlers of one message each way, as calls of the same process reach them.

    Args:
        max_message_bytes: Largest message that the server takes or sends.
    """

    def __init__(self, max_message_bytes: int) -> None:
        self.max_message_bytes = max_message_bytes
        self.loop = asyncio.get_running_loop()
        self._methods: dict[str, tuple[type[Message], Behavior]] = {}
        self._running: set[asyncio.Task[Any]] = set()
        # As over a socket, a call begins with what the server was started with, and not with what its caller has set.
        self._context = contextvars.copy_context()

    def add(self, method: str, handler: "grpc.RpcMethodHandler[Any, Any]") -> None:
        """Takes the handler of a method; others than those of operations of one message each way are passed over."""
        op = op_by_method(method)
        if op is None or handler.request_streaming or handler.response_streaming or handler.unary_unary is None:
            return
        behavior: Any = handler.unary_unary
        self._methods[method] = message_factory.GetMessageClass(op.request), behavior

    def takes(self, method: str, request: object) -> bool:
        """Returns whether it answers such a call: only the method's own message is one."""
        found = self._methods.get(method)
        return found is not None and type(request) is found[0]

    def begin(
        self, method: str, request: Message, metadata: Pairs, deadline: float | None
    ) -> tuple["asyncio.Task[Message | None]", LocalContext]:
        """Begins a call in a task of its own; the task never fails, and its context tells how the call ended."""
        message_type, behavior = self._methods[method]
        copied = message_type()
        copied.CopyFrom(request)
        context = LocalContext(metadata, deadline)
        task = self.loop.create_task(_answer(behavior, copied, context), context=self._context.copy())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task, context

    async def drain(self, grace_s: float) -> None:
        """Waits for running calls, and ends those that run longer than `grace_s` seconds."""
        if not self._running:
            return
        _, late = await asyncio.wait(set(self._running), timeout=grace_s)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)


class LocalServers:
    """The servers of one process, by the address that each bound."""

    def __init__(self) -> None:
        self._servers: dict[str, LocalServer] = {}

    def at(self, address: str) -> LocalServer | None:
        """Returns the server that is bound there, if calls of the running loop may reach it directly."""
        found = self._servers.get(address)
        return found if found is not None and found.loop is asyncio.get_running_loop() else None

    @contextmanager
    def serving(self, address: str, server: LocalServer) -> Iterator[None]:
        """Lets calls reach a server for the block."""
        self._servers[address] = server
        try:
            yield
        finally:
            del self._servers[address]


_SERVERS: ContextVar[LocalServers | None] = ContextVar("loom_local_servers", default=None)


@contextmanager
def local_calls() -> Iterator[LocalServers]:
    """Lets the servers and channels that are opened in the block, and in tasks begun there, reach each other."""
    servers = LocalServers()
    token = _SERVERS.set(servers)
    try:
        yield servers
    finally:
        _SERVERS.reset(token)


def local_servers() -> LocalServers | None:
    """Returns the servers of the running block of `local_calls`; None outside of any."""
    return _SERVERS.get()


def usual(metadata: Pairs) -> bool:
    """Returns whether metadata is such as callers of ours send, which arrives over a socket as it was sent."""
    size = 0
    for key, value in metadata:
        if key in _TEXT_KEYS:
            if not (isinstance(value, str) and value.isascii() and value.isprintable()):
                return False
        elif key != ATTRIBUTION_KEY or not isinstance(value, bytes):
            return False
        size += len(key) + len(value) + _FIELD_BYTES
    return size <= headers.MAX_METADATA_BYTES


async def _answer(behavior: Behavior, request: Message, context: LocalContext) -> Message | None:
    """Returns a handler's answer; None where it has none, and the context says why."""
    try:
        answer = await behavior(request, context)
    except grpc.aio.AbortError:
        return None
    except Exception as error:  # noqa: BLE001 - whatever a handler raises, its caller gets an answer
        # What the interceptors let out; said as gRPC says it.
        _log.exception("handler_failed")
        context.set_code(grpc.StatusCode.UNKNOWN)
        context.set_details(f"Unexpected {type(error)}: {error}")
        return None
    if not isinstance(answer, Message):
        context.set_code(grpc.StatusCode.UNKNOWN)
        context.set_details(f"Unexpected {TypeError}: the handler answered no message")
        return None
    return answer


class LocalCall:
    """One call within the process, as its caller sees it: awaited for its answer, then asked for what came beside it.

    Args:
        server: Where it goes.
        method: Path of the method.
        request: Message that is sent; it may change once the call was awaited.
        timeout_s: Units: seconds after which it is given up; None for never.
        metadata: What goes along.
        max_message_bytes: Largest message that the caller takes.
    """

    def __init__(
        self,
        server: LocalServer,
        method: str,
        request: Message,
        timeout_s: float | None,
        metadata: Pairs,
        max_message_bytes: int,
    ) -> None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._server, self._max_message_bytes, self._timeout_s = server, max_message_bytes, timeout_s
        self.task, self._context = server.begin(method, request, metadata, deadline)

    def __await__(self) -> Any:
        """Waits for the answer.

        Raises:
            AioRpcError: As the same call over a socket.
        """
        return self._answered().__await__()

    async def trailing_metadata(self) -> Pairs:
        """Returns what came beside the answer."""
        found: Pairs = self._context.trailing_metadata()
        return found

    async def _answered(self) -> Message:
        task = self.task
        try:
            await _ended(task, self._timeout_s)
        except asyncio.CancelledError:
            # The caller left. As over a socket, it does not wait for the handler to find out.
            task.cancel()
            raise
        # A handler that was told that the time is over has recorded its usage: taking it as well would count it twice.
        if not task.done() or self._context.is_over:
            task.cancel()
            raise _error(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
        if task.cancelled():
            raise _error(grpc.StatusCode.CANCELLED, "")
        answer = task.result()
        code = self._context.code()
        if answer is None or code not in (None, grpc.StatusCode.OK):
            raise _error(code or grpc.StatusCode.UNKNOWN, self._context.details(), self._context.trailing_metadata())
        self._require_fitting(answer)
        copied = type(answer)()
        copied.CopyFrom(answer)
        return copied

    def _require_fitting(self, answer: Message) -> None:
        size = answer.ByteSize()
        if size > self._server.max_message_bytes:
            limit = self._server.max_message_bytes
            raise _error(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"SERVER: Sent message larger than max ({size} vs. {limit})"
            )
        if size > self._max_message_bytes:
            limit = self._max_message_bytes
            raise _error(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"CLIENT: Received message larger than max ({size} vs. {limit})"
            )


async def _ended(task: "asyncio.Task[Any]", timeout_s: float | None) -> None:
    """Waits until the task ends or the time is over; a leaner `asyncio.wait`."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def wake(_ended: object = None) -> None:
        if not waiter.done():
            waiter.set_result(None)

    task.add_done_callback(wake)
    timer = None if timeout_s is None else loop.call_later(timeout_s, wake)
    try:
        await waiter
    finally:
        if timer is not None:
            timer.cancel()


def _error(code: grpc.StatusCode, details: str, trailing: Mapping[str, Any] | Pairs = ()) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details)
