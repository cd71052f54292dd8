"""The gateway's HTTP listener: one uvicorn server inside the process's own event loop."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from loom_common.server import ListenError
from loom_gateway.http.connections import ConnectionLimits, bounded_connections

_VARIABLE: Final = "LOOM_GATEWAY_LISTEN"
_BACKLOG: Final = 2048
# A little longer than the drain, after which uvicorn cancels what still runs.
_STOP_MARGIN_S: Final = 5.0


@asynccontextmanager
async def serving_http(
    app: ASGIApp, listen: str, *, drain_s: float, limits: ConnectionLimits | None = None
) -> AsyncIterator[str]:
    """Serves `app` until it is left; yields the address once it answers, such as `127.0.0.1:8080`.

    Args:
        app: ASGI application; its lifespan runs.
        listen: `host:port` or `unix:<path>`; port 0 takes a free one.
        drain_s: Units: seconds that running requests get to end.
        limits: What connections may take.

    Raises:
        ListenError: The address is taken or not ours, or the application does not start.
    """
    limits = limits or ConnectionLimits()
    listener = _bound(listen)
    config = uvicorn.Config(
        app,
        http=bounded_connections(limits),
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_keep_alive=limits.keep_alive_s,
        timeout_graceful_shutdown=max(1, round(drain_s)),
    )
    server = uvicorn.Server(config)
    # Signals belong to the process, which stops more than this server.
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]  # uvicorn has no option for it
    task = asyncio.create_task(_serve(server, listener), name="http-listener")
    try:
        await _started(server, task)
        yield _shown(listener)
    finally:
        server.should_exit = True
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(drain_s + _STOP_MARGIN_S):
                    await task
        finally:
            listener.close()


async def _serve(server: uvicorn.Server, listener: socket.socket) -> None:
    try:
        await server.serve(sockets=[listener])
    except SystemExit:
        # Out of a task it would end the event loop, with every other service on it half open.
        raise ListenError("The HTTP application did not start; the log above says why.") from None


async def _started(server: uvicorn.Server, task: asyncio.Task[None]) -> None:
    # uvicorn tells nobody when it is up, so it is asked.
    while not server.started:
        if task.done():
            await task
            raise ListenError("The HTTP listener ended while it started; the log above says why.")
        await asyncio.sleep(0.01)


def _bound(listen: str) -> socket.socket:
    try:
        if listen.startswith("unix:"):
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(listen.removeprefix("unix:"))
        else:
            host, _, port = listen.rpartition(":")
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = socket.create_server((host.strip("[]"), int(port)), family=family, backlog=_BACKLOG)
            # asyncio turns this on by itself only for sockets that name their protocol, which these do not; accepted
            # connections inherit it. Without it each answer waits 40 ms for the client's acknowledgement.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except (OSError, OverflowError, ValueError) as error:
        text = error.strerror if isinstance(error, OSError) and error.strerror else "no such address"
        raise ListenError(f"{listen} cannot be bound: {text}. Set {_VARIABLE} to another address.") from None
    listener.setblocking(False)
    return listener


def _shown(listener: socket.socket) -> str:
    if listener.family == socket.AF_UNIX:
        return f"unix:{listener.getsockname()}"
    host, port = listener.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - replaced
    return f"[{shown}]:{port}" if ":" in shown else f"{shown}:{port}"
