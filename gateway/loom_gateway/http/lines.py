"""Lines of JSON in and out: how operations over many records look over HTTP.

Such an operation carries its records as `lines`, bytes that the gateway neither reads nor writes anew. What else a
message says stands in lines of its own, beside the records where they go out, in the query where they come in.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from pydantic import JsonValue
from starlette.datastructures import Headers, QueryParams
from starlette.types import Receive, Scope, Send

from loom_common.errors import Cancelled, DeadlineExceeded, LoomError, MalformedRequest, PayloadTooLarge, to_http
from loom_common.interceptors.validation import check_message
from loom_common.ops import OpSpec
from loom_gateway.calls.caller import Caller
from loom_gateway.calls.dispatch import Dispatcher
from loom_gateway.contract.answers import encode, render
from loom_gateway.contract.catalogue import LINES, PublicOp

MEDIA_TYPE: Final = "application/x-ndjson"
MAX_IMPORT_BYTES: Final = 64 * 1024 * 1024
# Source: chosen. The longest memory with its vectors and as much of its history as an export sends is some 3 MB.
MAX_LINE_BYTES: Final = 4 * 1024 * 1024

# Lines and bytes of one message to the service. Source: chosen; half of what a message may hold, and enough that the
# store's statements are few.
_BATCH_LINES: Final = 1_000
_BATCH_BYTES: Final = 4 * 1024 * 1024
# Source: chosen. Slower than that is no network, but somebody who wants the connection held.
_PART_S: Final = 30.0
# What is passed on of a line that is too long: it says which, and is no JSON any more.
_CUT: Final = b'{"too long, more than 4 MiB": '
_KINDS: Final = frozenset({MEDIA_TYPE, "application/jsonl", "application/jsonlines"})
_HEADERS: Final = [
    (b"content-type", b"application/x-ndjson; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


async def send_lines(messages: AsyncIterator[Message], send: Send, request_id: str) -> None:
    """Sends the lines of messages as they come, and after those of each what else it says as a line of its own.

    Raises:
        LoomError: It failed. Once lines were sent, the last of them says so.
    """
    await _send_all(_lines_of(messages), send, request_id)


class LineIntake:
    """Answers operations that take lines. The answer begins once the whole body is read: few clients do both at once.

    Args:
        dispatcher: Carries the call.
        max_bytes: Largest body that is taken.
    """

    def __init__(self, dispatcher: Dispatcher, *, max_bytes: int = MAX_IMPORT_BYTES) -> None:
        self._dispatcher = dispatcher
        self._max_bytes = max_bytes

    async def answer(self, op: PublicOp, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one call.

        Raises:
            LoomError: Why it is refused, before anything was sent or told in the last line.
        """
        headers = Headers(scope=scope)
        batches = _batches(_body(headers, receive, self._max_bytes))
        asked = QueryParams(scope.get("query_string", b""))

        async def first() -> Message:
            _require_kind(headers)
            request = _request(op.spec, asked)
            getattr(request, LINES).extend(await anext(batches, []))
            check_message(request)
            return request

        failures: list[LoomError] = []

        async def more() -> AsyncIterator[Message]:
            make = message_factory.GetMessageClass(op.spec.request)
            try:
                async for lines in batches:
                    yield make(**{LINES: lines})
            except LoomError as error:
                # What came before is stored; its answers come first.
                failures.append(error)

        async with self._dispatcher.stream(op, caller, first, more()) as messages:
            # Everything is answered at its end, in lines that are short beside those that came.
            answered: list[bytes] = []
            try:
                async for message in messages:
                    answered.append(encode(render(message)))  # noqa: PERF401 # what came before a failure counts
            except LoomError as error:
                failures.append(error)
            await _send_all(_each(answered, failures), send, caller.request_id)


async def _lines_of(messages: AsyncIterator[Message]) -> AsyncIterator[bytes]:
    async for message in messages:
        told: dict[str, JsonValue] = {"cursor": getattr(message, "cursor")}  # noqa: B009 # of whatever sends lines
        if getattr(message, "finished"):  # noqa: B009
            told = {"finished": True, "count": getattr(message, "count")}  # noqa: B009
        yield b"".join(line + b"\n" for line in getattr(message, LINES)) + encode(told) + b"\n"


async def _each(answered: list[bytes], failures: list[LoomError]) -> AsyncIterator[bytes]:
    for line in answered:
        yield line + b"\n"
    if failures:
        raise failures[0]


async def _send_all(parts: AsyncIterator[bytes], send: Send, request_id: str) -> None:
    started = False
    try:
        async for part in parts:
            if not started:
                started = True
                await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
            await send({"type": "http.response.body", "body": part, "more_body": True})
    except LoomError as error:
        if not started:
            raise
        _, _, body = to_http(error, error.request_id or request_id)
        await send({"type": "http.response.body", "body": encode(body) + b"\n", "more_body": False})
        raise
    if not started:
        await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _require_kind(headers: Headers) -> None:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in _KINDS:
        raise MalformedRequest(f"The body must be lines of JSON: send `Content-Type: {MEDIA_TYPE}`.")
    if headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise MalformedRequest("Lines are taken as they are, without a Content-Encoding.")


def _request(spec: OpSpec, asked: QueryParams) -> Message:
    """Returns the first message, as the query says what it is beside its lines.

    Raises:
        MalformedRequest: A parameter is unknown, comes twice, or is not what it should be.
    """
    message = message_factory.GetMessageClass(spec.request)()
    fields = {field.name: field for field in spec.request.fields if field.name != LINES}
    for name, value in asked.multi_items():
        field = fields.get(name)
        if field is None or len(asked.getlist(name)) > 1:
            raise MalformedRequest(
                f"The parameter {name!r} is unknown or comes twice; there are {', '.join(sorted(fields))}."
            )
        setattr(message, name, _READ[field.type](name, value))
    return message


def _truth(name: str, value: str) -> bool:
    if value not in ("true", "false"):
        raise MalformedRequest(f"The parameter {name!r} must be true or false.")
    return value == "true"


def _text(name: str, value: str) -> str:
    return value


_READ: Final[Mapping[int, Callable[[str, str], str | bool]]] = {
    FieldDescriptor.TYPE_STRING: _text,
    FieldDescriptor.TYPE_BOOL: _truth,
}


async def _body(headers: Headers, receive: Receive, limit_bytes: int) -> AsyncIterator[bytes]:
    """Yields a body as it comes.

    Raises:
        PayloadTooLarge: It is longer than the limit, told or not; what came before is not lost by that.
        DeadlineExceeded: Nothing came for long.
        Cancelled: The client went away.
    """
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit_bytes:
        raise _too_large(limit_bytes)
    size = 0
    while True:
        try:
            async with asyncio.timeout(_PART_S):
                message = await receive()
        except TimeoutError:
            raise DeadlineExceeded(f"Nothing of the body came for {_PART_S:g} seconds.") from None
        if message["type"] == "http.disconnect":
            raise Cancelled("The client went away before its body was read.")
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > limit_bytes:
            raise _too_large(limit_bytes)
        yield part
        if not message.get("more_body", False):
            return


def _too_large(limit_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"The body is larger than {limit_bytes} bytes; send the lines in several calls.",
        detail={"max_bytes": limit_bytes},
    )


async def _batches(body: AsyncIterator[bytes]) -> AsyncIterator[list[bytes]]:
    """Yields the lines of a body, some at a time; one that is too long is cut, and never held whole."""
    lines: list[bytes] = []
    size = 0
    async for line in _split(body):
        if lines and (len(lines) == _BATCH_LINES or size + len(line) > _BATCH_BYTES):
            yield lines
            lines, size = [], 0
        lines.append(line)
        size += len(line)
    if lines:
        yield lines


async def _split(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    held, is_cut = bytearray(), False
    async for part in body:
        first, *rest = part.split(b"\n")
        is_cut = _take(held, first, is_cut=is_cut)
        for piece in rest:
            yield bytes(held)
            held, is_cut = bytearray(), False
            is_cut = _take(held, piece, is_cut=False)
    if held:
        yield bytes(held)


def _take(held: bytearray, piece: bytes, *, is_cut: bool) -> bool:
    """Adds a piece to a line, and returns whether the line is cut by now."""
    if is_cut:
        return True
    if len(held) + len(piece) > MAX_LINE_BYTES:
        held[:] = _CUT
        return True
    held += piece
    return False
