"""A local HTTP server that answers as OpenAI, Anthropic and Gemini do, also where they fail.

It speaks HTTP/1.1 by hand, so that it can break off in the middle of a body. Replies are scripted in order; where the
script is empty, it answers well.
"""

import asyncio
import base64
import json
import struct
import zlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from pydantic import JsonValue
from support.provider_streams import Asked, anthropic_events, openai_events

OPENAI_CHAT: Final = "/v1/chat/completions"
OPENAI_EMBEDDINGS: Final = "/v1/embeddings"
ANTHROPIC_MESSAGES: Final = "/v1/messages"
GEMINI_EMBEDDINGS: Final = ":batchEmbedContents"
"""End of the path; the model stands before it."""

TEST_KEY: Final = "sk-secret-of-the-test"
"""Key that tests give to clients."""

JsonObject = dict[str, JsonValue]


class Fault(Enum):
    """How a reply goes wrong below HTTP."""

    NONE = auto()
    HANG = auto()
    """Says nothing until the server is closed."""
    RESET = auto()
    """Closes the connection without a byte."""
    HALF_BODY = auto()
    """Closes the connection in the middle of the body, or of a stream's last event."""
    STALL = auto()
    """Sends a stream's events and then nothing more, and does not end it."""
    CUT = auto()
    """Sends a stream's events and closes the connection before its end."""
    ENDLESS = auto()
    """Sends a stream's events, and the last of them again and again."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One scripted answer. `body` is sent as it is where it is text or bytes, else as JSON.

    Where `events` is given, they are streamed instead of a body, each as it is.
    """

    status: int = 200
    body: JsonValue | bytes = None
    headers: Mapping[str, str] = field(default_factory=dict)
    fault: Fault = Fault.NONE
    events: Sequence[str] | None = None

    @classmethod
    def error(cls, status: int, message: str = "scripted", **headers: str) -> "Reply":
        """Returns an error in a form that both providers' SDKs read; `retry_after="1"` adds that header."""
        body: JsonValue = {"type": "error", "error": {"type": "scripted_error", "message": message}}
        return cls(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


@dataclass(frozen=True, slots=True)
class Received:
    """One request as it came; header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    json: JsonObject


class ProviderStandIn:
    """The server. `requests` holds what came, in order."""

    def __init__(self) -> None:
        self.requests: list[Received] = []
        self.arrived = asyncio.Event()
        """Set when a request has come; clear it to wait for the next."""
        self.port = 0
        self.rule: Callable[[Received], Reply | None] = lambda request: None
        """Answers a request that the script has no reply for, before the provider would."""
        self.open_streams = 0
        """Streams that are being sent, or that stalled and whose clients still wait."""
        self.stream_ended = asyncio.Event()
        """Set when a stream has ended or its client has left; clear it to wait for the next."""
        self._script: deque[Reply] = deque()
        self._closing = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def openai_url(self) -> str:
        """Value for `LOOM_OPENAI_BASE_URL`."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def anthropic_url(self) -> str:
        """Value for `LOOM_ANTHROPIC_BASE_URL`."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def gemini_url(self) -> str:
        """Value for `LOOM_GEMINI_BASE_URL`."""
        return f"http://127.0.0.1:{self.port}/v1beta"

    def script(self, *replies: Reply) -> None:
        """Adds replies to be given next, in order."""
        self._script.extend(replies)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["ProviderStandIn"]:
        """Serves on a free port of loopback until it is left."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            self._closing.set()
            server.close()
            await server.wait_closed()
            await asyncio.gather(*self._connections)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        try:
            while (request := await self._read(reader)) is not None:
                self.requests.append(request)
                self.arrived.set()
                reply = self._script.popleft() if self._script else self.rule(request) or good_reply(request)
                answered = self._stream if reply.events is not None else self._answer
                if not await answered(reply, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client left
        finally:
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Received | None:
        head_task = asyncio.ensure_future(reader.readuntil(b"\r\n\r\n"))
        closing = asyncio.ensure_future(self._closing.wait())
        await asyncio.wait([head_task, closing], return_when=asyncio.FIRST_COMPLETED)
        closing.cancel()
        if not head_task.done():
            head_task.cancel()
            return None
        head = await head_task
        first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        method, path, _ = first.split(" ", 2)
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        parsed = json.loads(body) if body else {}
        return Received(method, path, headers, parsed)

    async def _stream(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Sends events in chunks; returns whether the connection can be used again."""
        events = [event.encode() for event in reply.events or ()]
        if reply.fault is Fault.HALF_BODY:
            events[-1] = events[-1][: len(events[-1]) // 2]
        self.open_streams += 1
        try:
            writer.write(
                f"HTTP/1.1 {reply.status} Scripted\r\ncontent-type: text/event-stream\r\n"
                "transfer-encoding: chunked\r\n\r\n".encode()
            )
            for event in events:
                await _write_chunk(writer, event)
            while reply.fault is Fault.ENDLESS and not self._closing.is_set():
                await _write_chunk(writer, events[-1])
                await asyncio.sleep(0)
            if reply.fault is Fault.STALL:
                await self._closing_or_left(reader)
            if reply.fault is not Fault.NONE:
                return False
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            return True
        finally:
            self.open_streams -= 1
            self.stream_ended.set()

    async def _closing_or_left(self, reader: asyncio.StreamReader) -> None:
        left = asyncio.ensure_future(reader.read(1))
        closing = asyncio.ensure_future(self._closing.wait())
        _, waiting = await asyncio.wait([left, closing], return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        await asyncio.gather(left, closing, return_exceptions=True)

    async def _answer(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if reply.fault is Fault.HANG:
            await self._closing_or_left(reader)
            return False
        if reply.fault is Fault.RESET:
            return False
        body = _sent(reply.body)
        headers = {"content-type": "application/json", **reply.headers, "content-length": str(len(body))}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        half = reply.fault is Fault.HALF_BODY
        writer.write(
            f"HTTP/1.1 {reply.status} Scripted\r\n{head}\r\n".encode() + (body[: len(body) // 2] if half else body)
        )
        await writer.drain()
        return not half


def good_reply(request: Received) -> Reply:
    """Returns what the provider would answer, with the last user message echoed."""
    match request.path.partition("?")[0]:
        case path if path == OPENAI_CHAT and request.json.get("stream"):
            return Reply(events=openai_events(f"echo: {_last_user(request)}", model=str(request.json.get("model"))))
        case path if path == ANTHROPIC_MESSAGES and request.json.get("stream"):
            return Reply(events=anthropic_events(f"echo: {_last_user(request)}", model=str(request.json.get("model"))))
        case path if path == OPENAI_CHAT:
            return Reply(body=chat_completion(f"echo: {_last_user(request)}", str(request.json.get("model"))))
        case path if path == ANTHROPIC_MESSAGES:
            return Reply(body=message(f"echo: {_last_user(request)}", str(request.json.get("model"))))
        case path if path == OPENAI_EMBEDDINGS:
            return Reply(body=openai_embeddings(request.json))
        case path if path.endswith(GEMINI_EMBEDDINGS):
            return Reply(body=gemini_embeddings(request.json))
        case _:
            return Reply.error(404, "no such path")


def chat_completion(
    text: str | None,
    model: str = "gpt-6-luna",
    *,
    calls: Sequence[Asked] = (),
    stop: str = "stop",
    **usage: JsonValue,
) -> JsonObject:
    """Returns a chat completion; `usage` replaces counts."""
    counts: JsonObject = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18, **usage}
    answer: JsonObject = {"role": "assistant", "content": text, "refusal": None}
    if calls:
        answer["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": model,
        "choices": [{"index": 0, "finish_reason": stop, "message": answer, "logprobs": None}],
        "usage": counts,
    }


def message(
    text: str,
    model: str = "claude-haiku-4-5",
    *,
    calls: Sequence[Asked] = (),
    stop: str = "end_turn",
    **usage: JsonValue,
) -> JsonObject:
    """Returns a message; `usage` replaces counts."""
    content: list[JsonValue] = [{"type": "text", "text": text}] if text or not calls else []
    content += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": json.loads(call.arguments)} for call in calls
    ]
    counts: JsonObject = {"input_tokens": 11, "output_tokens": 7, **usage}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": counts,
    }


def texts_of(request: Received) -> list[str]:
    """Returns the texts that a request wants embedded, whichever provider it is for."""
    if GEMINI_EMBEDDINGS in request.path:
        parts = _json(request.json, "requests")
        return [str(_json(_json(one, "content"), "parts")[0]["text"]) for one in parts]
    given = request.json.get("input")
    return [str(text) for text in given] if isinstance(given, list) else [str(given)]


def embedding_of(text: str, dim: int) -> list[float]:
    """Returns the stand-in's vector of a text: another one for each, of unit length."""
    vector = [0.0] * dim
    hashed = zlib.crc32(text.encode())
    vector[hashed % dim] += 0.6
    vector[(hashed // dim) % dim] += 0.8 if hashed % dim != (hashed // dim) % dim else 0.4
    return vector


def openai_embeddings(request: JsonObject, rows: Sequence[Sequence[float]] | None = None) -> JsonObject:
    """Returns what OpenAI answers: three tokens a text, and bytes for numbers where they are asked for.

    Args:
        request: The request.
        rows: Vectors to answer instead of the right ones.
    """
    given = request.get("input")
    texts = [str(text) for text in given] if isinstance(given, list) else [str(given)]
    dim = int(str(request.get("dimensions") or 8))
    packed = request.get("encoding_format") == "base64"
    data: list[JsonValue] = []
    for at, row in enumerate(rows if rows is not None else [embedding_of(text, dim) for text in texts]):
        numbers: JsonValue = base64.b64encode(struct.pack(f"<{len(row)}f", *row)).decode() if packed else [*row]
        data.append({"object": "embedding", "index": at, "embedding": numbers})
    return {
        "object": "list",
        "model": str(request.get("model")),
        "data": data,
        "usage": {"prompt_tokens": 3 * len(texts), "total_tokens": 3 * len(texts)},
    }


def gemini_embeddings(request: JsonObject, rows: Sequence[Sequence[float]] | None = None) -> JsonObject:
    """Returns what Gemini answers; see `openai_embeddings`."""
    found = []
    for one in _json(request, "requests"):
        text = str(_json(_json(one, "content"), "parts")[0]["text"])
        found.append(embedding_of(text, int(str(one.get("outputDimensionality") or 8))))
    return {"embeddings": [{"values": [*row]} for row in (rows if rows is not None else found)]}


async def _write_chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
    await writer.drain()


def _json(held: Any, name: str) -> Any:
    # Requests are our own clients'; a key that is missing fails the test that sent it.
    return held[name]


def _sent(body: JsonValue | bytes) -> bytes:
    if isinstance(body, bytes):
        return body
    return (body if isinstance(body, str) else json.dumps(body)).encode()


def _last_user(request: Received) -> str:
    messages = request.json.get("messages")
    if isinstance(messages, list):
        for one in reversed(messages):
            if isinstance(one, dict) and one.get("role") == "user":
                return str(one.get("content"))
    return ""
