"""Passes HTTP on to a server and adds a token, for programs that cannot be told one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

_HEAD_END = b"\r\n\r\n"
_MAX_HEAD_BYTES = 64 * 1024


@asynccontextmanager
async def adding_token(url: str, token: str) -> AsyncIterator[str]:
    """Serves until it is left; yields its own address.

    Everything else goes through as it came, `Host` and `Origin` included. Each connection carries one request, so that
    nothing but its head must be understood.
    """
    target = urlsplit(url)
    connections: set[asyncio.Task[None]] = set()
    added = f"Authorization: Bearer {token}\r\nConnection: close".encode()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve(reader, writer))
        connections.add(task)
        task.add_done_callback(connections.discard)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(_HEAD_END)
            lines = [line for line in head[: -len(_HEAD_END)].split(b"\r\n") if not _is_replaced(line)]
            onward, upstream = await asyncio.open_connection(target.hostname, target.port)
            upstream.write(b"\r\n".join([*lines, added]) + _HEAD_END)
            sending = asyncio.create_task(_copy(reader, upstream))
            try:
                await _copy(onward, writer)
            finally:
                sending.cancel()
                await asyncio.wait({sending})
                upstream.close()
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=_MAX_HEAD_BYTES)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
        server.close()
        for task in connections:
            task.cancel()
        if connections:
            await asyncio.wait(connections)


def _is_replaced(line: bytes) -> bool:
    return line.partition(b":")[0].strip().lower() in (b"authorization", b"connection")


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(65_536):
            writer.write(chunk)
            await writer.drain()
