"""Passes a client's messages on, each in a task of its own, and writes back what comes."""

import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol

from loom_cli.mcp_gateway import Json, Unreached

Write = Callable[[Json], None]

_PARSE_ERROR: Final = -32700
_UNREACHED: Final = -32000
_INITIALIZE: Final = "initialize"
_CANCELLED: Final = "notifications/cancelled"
# Source: chosen. A client that closes its end waits for nothing; a pipe that ran dry still wants its answers.
_LAST_ANSWERS_S: Final = 10.0


class Way(Protocol):
    """The way to a gateway."""

    def send(self, message: Json, line: bytes) -> AsyncIterator[Json]:
        """Yields what comes back for a message.

        Args:
            message: The message.
            line: It as its client wrote it, which is what the gateway judges.

        Raises:
            Unreached: It was not answered.
        """
        ...


class Bridge:
    """Serves one client.

    Args:
        way: The way to the gateway.
        write: Writes one message to the client.
    """

    def __init__(self, way: Way, write: Write) -> None:
        self._way = way
        self._write = write
        self._running: dict[str | int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, lines: AsyncIterator[bytes]) -> None:
        """Serves until the client closes its end."""
        async for line in lines:
            if line.strip():
                await self._take(line)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LAST_ANSWERS_S)
        for task in self._tasks:
            task.cancel()

    async def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            self._write(_error(None, _PARSE_ERROR, "The line is not one JSON-RPC message."))
            return
        if message.get("method") == _CANCELLED:
            self._cancel(message.get("params"))
            return
        task = asyncio.create_task(self._pass_on(message, line))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        identifier = message.get("id")
        if isinstance(identifier, str | int) and "method" in message:
            self._running[identifier] = task
            task.add_done_callback(lambda _: self._running.pop(identifier, None))
        if message.get("method") == _INITIALIZE:
            # What it agrees on goes into the headers of all that follows.
            await asyncio.wait({task})

    async def _pass_on(self, message: Json, line: bytes) -> None:
        try:
            async for answer in self._way.send(message, line):
                self._write(answer)
        except Unreached as error:
            if "id" in message and "method" in message:
                self._write(_error(message["id"], _UNREACHED, str(error)))

    def _cancel(self, params: object) -> None:
        """Ends a request; its connection closes, which ends it on the gateway and behind."""
        named = params.get("requestId") if isinstance(params, dict) else None
        task = self._running.get(named) if isinstance(named, str | int) else None
        if task is not None:
            task.cancel()


def stdio() -> tuple[AsyncIterator[bytes], Write]:
    """Returns the lines of standard input, and what writes messages to standard output."""

    def write(message: Json) -> None:
        text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
        sys.stdout.buffer.write(text.encode("utf-8", "replace") + b"\n")
        sys.stdout.buffer.flush()

    return _lines(), write


async def _lines() -> AsyncIterator[bytes]:
    """Yields lines as they come; read in a thread, since not every system has other ways for standard input."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes] = asyncio.Queue()

    def read() -> None:
        for line in iter(sys.stdin.buffer.readline, b""):
            loop.call_soon_threadsafe(queue.put_nowait, line)
        loop.call_soon_threadsafe(queue.put_nowait, b"")

    # A daemon: nothing else can end a read of standard input, and the process must not wait for one.
    threading.Thread(target=read, name="stdin", daemon=True).start()
    while line := await queue.get():
        yield line


def _error(identifier: object, code: int, message: str) -> Json:
    return {"jsonrpc": "2.0", "id": identifier, "error": {"code": code, "message": message}}
