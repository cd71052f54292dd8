"""A provider that answers at once: OpenAI's chat completions over HTTP/1.1, whole or streamed, in a process of its own.

Usage: python -m bench.llm_stand_in. It prints its port on the first line and serves until it is killed.
"""

import asyncio
import json
from typing import Final

SLOW: Final = "slow"
"""A prompt that holds this word is streamed slowly."""

_PIECES: Final = 20
_SLOW_S: Final = 0.1
_USAGE: Final = {"prompt_tokens": 10, "completion_tokens": _PIECES, "total_tokens": 10 + _PIECES}
_HEAD: Final = {"id": "r", "created": 1, "model": "gpt-6-luna"}


def _whole() -> bytes:
    message = {"role": "assistant", "content": "word " * _PIECES}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = json.dumps({**_HEAD, "object": "chat.completion", "choices": [choice], "usage": _USAGE}).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _piece(choices: list[dict[str, object]], **more: object) -> bytes:
    data = json.dumps({**_HEAD, "object": "chat.completion.chunk", "choices": choices, **more}).encode()
    frame = b"data: " + data + b"\n\n"
    return f"{len(frame):x}\r\n".encode() + frame + b"\r\n"


_WHOLE: Final = _whole()
_STREAM: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_WORD: Final = _piece([{"index": 0, "delta": {"role": "assistant", "content": "word "}, "finish_reason": None}])
_DONE: Final = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
_LAST: Final = _piece([{"index": 0, "delta": {}, "finish_reason": "stop"}]) + _piece([], usage=_USAGE) + _DONE


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = int(head.partition("content-length:")[2].partition("\r\n")[0] or 0)
            asked = json.loads(await reader.readexactly(length))
            if not asked.get("stream"):
                writer.write(_WHOLE)
                continue
            writer.write(_STREAM)
            slow = SLOW in asked["messages"][-1]["content"]
            for _ in range(_PIECES):
                writer.write(_WORD)
                if slow:
                    await asyncio.sleep(_SLOW_S)
            writer.write(_LAST)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass  # the client left
    finally:
        writer.close()


async def main() -> None:
    """Serves until it is killed."""
    server = await asyncio.start_server(_serve, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
