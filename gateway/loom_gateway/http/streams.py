"""Answers of several messages as server-sent events.

Each message is a frame `data: {...}`. The last frame is `data: [DONE]`: a stream without it was cut. What goes wrong
before the first message is answered as any error is; later, by a frame `data: {"error": {...}}` and no `[DONE]`.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

from google.protobuf.message import Message
from pydantic import JsonValue
from starlette.types import Send

from loom_common.errors import LoomError, to_http
from loom_gateway.contract.answers import encode, render

MEDIA_TYPE: Final = "text/event-stream"
DONE: Final = b"data: [DONE]\n\n"

# Source: chosen. Proxies close connections that are silent for a minute, some for half of one.
_BEAT_S: Final = 15.0
# A comment, which every reader of such a stream passes over.
_BEAT: Final = b": still here\n\n"
_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


async def send_events(
    messages: AsyncIterator[Message], send: Send, request_id: str, *, beat_s: float = _BEAT_S
) -> None:
    """Sends messages as they come, to the end.

    Args:
        messages: What is sent.
        send: Where the answer goes.
        request_id: Identifier of the call in the logs.
        beat_s: Units: seconds of silence after which a comment is sent.

    Raises:
        LoomError: It failed before anything was sent.
    """
    started = False

    async def push(data: bytes, *, more: bool = True) -> None:
        nonlocal started
        if not started:
            started = True
            await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
        await send({"type": "http.response.body", "body": data, "more_body": more})

    beating = _with_beats(messages, beat_s)
    try:
        async for message in beating:
            await push(_BEAT if message is None else _frame(render(message)))
        await push(DONE, more=False)
    except LoomError as error:
        if not started:
            raise
        _, _, body = to_http(error, error.request_id or request_id)
        await push(_frame(body), more=False)
        raise
    finally:
        await beating.aclose()


def _frame(value: JsonValue) -> bytes:
    return b"data: " + encode(value) + b"\n\n"


async def _with_beats(messages: AsyncIterator[Message], beat_s: float) -> AsyncGenerator[Message | None, None]:
    """Yields the messages, and None whenever none came for a while."""
    pending: asyncio.Task[Message] | None = None
    try:
        while True:
            if pending is None:
                pending = asyncio.create_task(_next(messages), name="stream-message")
            await asyncio.wait({pending}, timeout=beat_s)
            if not pending.done():
                yield None
                continue
            try:
                message = pending.result()
            except StopAsyncIteration:
                return
            pending = None
            yield message
    finally:
        # Whoever closes the messages next must not find them being read.
        if pending is not None and not pending.done():
            pending.cancel()
            await asyncio.wait({pending})


async def _next(messages: AsyncIterator[Message]) -> Message:
    return await anext(messages)
