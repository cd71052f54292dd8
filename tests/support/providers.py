"""A local HTTP server that answers as OpenAI and Anthropic do, also where they fail.

It speaks HTTP/1.1 by hand, so that it can break off in the middle of a body. Replies are scripted in order; where the
script is empty, it answers well.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from pydantic import JsonValue

OPENAI_CHAT: Final = "/v1/chat/completions"
OPENAI_EMBEDDINGS: Final = "/v1/embeddings"
ANTHROPIC_MESSAGES: Final = "/v1/messages"

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
    """Closes the connection in the middle of the body."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One scripted answer. `body` is sent as it is where it is text, else as JSON."""

    status: int = 200
    body: JsonValue = None
    headers: Mapping[str, str] = field(default_factory=dict)
    fault: Fault = Fault.NONE

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
                reply = self._script.popleft() if self._script else good_reply(request)
                if not await self._answer(reply, writer):
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

    async def _answer(self, reply: Reply, writer: asyncio.StreamWriter) -> bool:
        if reply.fault is Fault.HANG:
            await self._closing.wait()
            return False
        if reply.fault is Fault.RESET:
            return False
        body = (reply.body if isinstance(reply.body, str) else json.dumps(reply.body)).encode()
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
        case path if path == OPENAI_CHAT:
            return Reply(body=chat_completion(f"echo: {_last_user(request)}", str(request.json.get("model"))))
        case path if path == ANTHROPIC_MESSAGES:
            return Reply(body=message(f"echo: {_last_user(request)}", str(request.json.get("model"))))
        case path if path == OPENAI_EMBEDDINGS:
            return Reply(body=_embeddings(request.json))
        case _:
            return Reply.error(404, "no such path")


def chat_completion(text: str | None, model: str = "gpt-6-luna", **usage: JsonValue) -> JsonObject:
    """Returns a chat completion; `usage` replaces counts."""
    counts: JsonObject = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18, **usage}
    answer: JsonObject = {"role": "assistant", "content": text, "refusal": None}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": model,
        "choices": [{"index": 0, "finish_reason": "stop", "message": answer, "logprobs": None}],
        "usage": counts,
    }


def message(text: str, model: str = "claude-haiku-4-5", **usage: JsonValue) -> JsonObject:
    """Returns a message; `usage` replaces counts."""
    counts: JsonObject = {"input_tokens": 11, "output_tokens": 7, **usage}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": counts,
    }


def _embeddings(request: JsonObject) -> JsonObject:
    given = request.get("input")
    texts = given if isinstance(given, list) else [given]
    dim = int(str(request.get("dimensions") or 8))
    vector: list[JsonValue] = [1.0, *([0.0] * (dim - 1))]
    data: list[JsonValue] = [{"object": "embedding", "index": at, "embedding": vector} for at in range(len(texts))]
    return {
        "object": "list",
        "model": str(request.get("model")),
        "data": data,
        "usage": {"prompt_tokens": 3 * len(texts), "total_tokens": 3 * len(texts)},
    }


def _last_user(request: Received) -> str:
    messages = request.json.get("messages")
    if isinstance(messages, list):
        for one in reversed(messages):
            if isinstance(one, dict) and one.get("role") == "user":
                return str(one.get("content"))
    return ""
