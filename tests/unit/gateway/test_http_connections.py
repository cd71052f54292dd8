"""What becomes of a connection whose client does not read the end of its answers."""

import asyncio

import pytest
import uvicorn
from starlette.responses import PlainTextResponse
from uvicorn.server import ServerState

from loom_gateway.http.connections import ConnectionLimits, bounded_connections


class Unread(asyncio.Transport):
    """A transport whose client reads nothing: what is written stays, so that closing it waits without an end."""

    def __init__(self) -> None:
        super().__init__()
        self.left_bytes = 0
        self.closing = False
        self.aborted = asyncio.Event()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.left_bytes += len(data)

    def get_write_buffer_size(self) -> int:
        return self.left_bytes

    def close(self) -> None:
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.aborted.set()

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        b"no http\r\n\r\n",
    ],
    ids=["kept", "to be closed", "refused"],
)
async def test_an_answer_that_is_too_short_to_hold_the_application_up_holds_no_connection_either(sent: bytes) -> None:
    config = uvicorn.Config(PlainTextResponse("ok"), lifespan="off", log_config=None, timeout_keep_alive=0)
    config.load()
    kind = bounded_connections(ConnectionLimits(stalled_s=0.01, head_s=600))
    transport = Unread()
    connection = kind(config=config, server_state=ServerState(), app_state={})
    connection.connection_made(transport)
    connection.data_received(sent)  # type: ignore[attr-defined]  # uvicorn's own
    async with asyncio.timeout(10):
        await transport.aborted.wait()
    assert transport.left_bytes > 0
    connection.connection_lost(None)
