"""The HTTP listener's socket."""

import socket

import pytest
from starlette.types import Receive, Scope, Send

from loom_common.server import ListenError
from loom_gateway.listener import _bound, serving_http


def test_an_answer_does_not_wait_for_the_clients_acknowledgement() -> None:
    with _bound("127.0.0.1:0") as listener, socket.create_connection(listener.getsockname()) as client:
        listener.setblocking(True)
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        assert client.fileno() >= 0


async def test_an_application_that_does_not_start_is_told_in_one_line() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no"})

    with pytest.raises(ListenError, match="did not start"):
        async with serving_http(app, "127.0.0.1:0", drain_s=1.0):
            pytest.fail("it serves")
