"""HTTP/1.1 connections that a slow or greedy client cannot hold: each wait for it has an end.

uvicorn bounds how long a connection may idle between two requests, and nothing else. Without more, a client that sends
a byte a minute, or never reads its answer, holds a connection for ever; one that sends a header without an end fills
the memory; and what stands behind a body as a trailer counts as a header.

The parser is that of httptools, which took half of what the one in Python did for a short request (0.19 ms instead of
0.37 with its client, measured 2026-11-30).
"""

import asyncio
from dataclasses import dataclass
from typing import Any, Final

import httptools
from pydantic import JsonValue
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from loom_gateway.contract.answers import encode
from loom_gateway.http.departures import DEPARTURE_STATE, Departure


def _whole_answer(status: str, code: str, message: str, *headers: str) -> bytes:
    """Returns an answer as its bytes, for where there is no request yet that the application could answer."""
    error: JsonValue = {"code": code, "message": message, "status": int(status[:3]), "detail": {}, "request_id": ""}
    body = encode({"error": error})
    fields = ("Content-Type: application/json", "Cache-Control: no-store", "Connection: close", *headers)
    head = "\r\n".join((f"HTTP/1.1 {status}", *fields, f"Content-Length: {len(body)}", "", ""))
    return head.encode() + body


_FULL: Final = _whole_answer(
    "503 Service Unavailable",
    "OVERLOADED",
    "The gateway holds as many connections as it may; try again a little later.",
    "Retry-After: 1",
)
_NO_HTTP: Final = _whole_answer("400 Bad Request", "MALFORMED_REQUEST", "What came is no HTTP request.")
_CLOSE: Final = (b"connection", b"close")
_WISHES: Final = frozenset({b"connection", b"upgrade", b"http2-settings"})


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What one connection, and all of them, may take."""

    max_connections: int = 4096
    """Open connections; one more is answered 503 and closed."""
    keep_alive_s: int = 75
    """Time that a connection may idle between two requests. Units: seconds. Source: chosen; clients that reuse one do
    so within seconds, or go through a proxy that keeps its own."""
    head_s: float = 10.0
    """Time in which a request's line and headers must be there, from the connection's opening or their first byte.
    Source: chosen; a slow mobile network takes a second."""
    stalled_s: float = 30.0
    """Time for which a client may read nothing of an answer that waits for it. Source: chosen, as for bodies."""
    head_bytes: int = 64 * 1024
    """Longest line and headers of a request. Source: chosen; four times the longest token."""
    max_ahead: int = 64
    """Requests that may wait for the one before them. Source: chosen; hardly a client sends any ahead."""
    max_requests: int = 10_000
    """Requests of one connection, after which it is closed, so that long-lived clients spread over new replicas."""


class _TooManyAhead(Exception):
    """A client sent more requests ahead than wait."""


def bounded_connections(limits: ConnectionLimits) -> type[asyncio.Protocol]:
    """Returns the class of connections with these limits, as uvicorn takes it."""

    class Bounded(BoundedConnection):
        bounds = limits

    return Bounded


class BoundedConnection(HttpToolsProtocol):
    """One connection."""

    bounds: ConnectionLimits = ConnectionLimits()

    def __init__(self, *arguments: Any, **named: Any) -> None:  # Any: uvicorn's own arguments, passed on
        super().__init__(*arguments, **named)
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._request_count = 0
        self._head_bytes = 0
        self._in_head = False
        self._broken = False
        self._running: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Takes the connection, or refuses it where there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.bounds.max_connections:
            transport.write(_FULL)
            transport.close()
            return
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends every timer, and tells the request that is answered: uvicorn tells the one that came last."""
        self._head_timer = _cancelled(self._head_timer)
        self._stall_timer = _cancelled(self._stall_timer)
        self.pipeline.clear()
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
            departure: Departure = self._running.scope["state"][DEPARTURE_STATE]
            departure.tell()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Reads what came; a request whose head is whole is no longer waited for."""
        if self.transport.is_closing() or self._broken:
            return  # refused: what it still sends is nobody's
        self._unset_keepalive_if_required()
        self._parse(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > self.bounds.head_bytes:
                self.send_400_response("")
        self._watch_head()

    def on_message_begin(self) -> None:
        """Begins a request's head."""
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Takes a header, without the blanks around it; a trailer, which comes behind the body, is passed over."""
        if self._in_head:
            # The parser takes off those before a value and leaves those behind it.
            super().on_header(name, value.strip(b" \t"))

    def on_headers_complete(self) -> None:
        """Ends a request's head. One that asks for another protocol begins anew without that wish."""
        self._in_head = False
        if not self.parser.should_upgrade():
            super().on_headers_complete()
        if len(self.pipeline) > self.bounds.max_ahead:
            raise _TooManyAhead  # ends the parsing of what came

    def on_message_complete(self) -> None:
        """Ends a request."""
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._parse_without_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("")

    def _parse_without_upgrade(self, rest: bytes) -> None:
        """Reads a request again without its wish for another protocol, which a server may pass over.

        The parser would pass over the body instead, and Java's own client wishes so with each of its requests.
        """
        method = self.parser.get_method()
        if method == b"CONNECT":
            self.send_400_response("")
            return
        kept = [(name, value) for name, value in self.headers if name not in _WISHES]
        if any(b"close" in value.lower() for name, value in self.headers if name == b"connection"):
            kept.append(_CLOSE)
        fields = b"".join(b"%b: %b\r\n" % field for field in kept)
        self.parser = httptools.HttpRequestParser(self)
        self._parse(b"%b %b HTTP/1.1\r\n%b\r\n%b" % (method, self.url, fields, rest))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:  # Any: as ASGI types applications
        self._running = cycle
        cycle.scope["state"][DEPARTURE_STATE] = Departure(self.flow.resume_reading)
        self._request_count += 1
        if self._request_count >= self.bounds.max_requests:
            # The application finds the header, and the client is told by the answer.
            cycle.scope["headers"] = [*cycle.scope["headers"], _CLOSE]
            cycle.keep_alive = False
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Goes on with the next request, or waits for it; a client that does not read the last answer is cut off."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch_reading()

    def timeout_keep_alive_handler(self) -> None:
        """Ends a connection that idles, with what its client did not read in all that time."""
        self._abort()

    def send_400_response(self, msg: str) -> None:
        """Answers what is no HTTP, in the shape of every other error, and ends the connection.

        A request before it that is still answered gets its own answer, and nothing comes in between.
        """
        running = self._running
        self._broken = True
        self.pipeline.clear()
        if self.transport.is_closing():
            return
        if running is None or running.response_complete or (running.more_body and not running.response_started):
            self.transport.write(_NO_HTTP)
            self.transport.close()
            self._watch_reading()
        elif running.more_body:
            self._abort()  # half of its answer is sent, and its own body is what is broken
        else:
            running.keep_alive = False

    def pause_writing(self) -> None:
        """Notes that the client does not read."""
        super().pause_writing()
        self._watch_reading()

    def resume_writing(self) -> None:
        """Notes that it reads again."""
        self._stall_timer = _cancelled(self._stall_timer)
        super().resume_writing()

    def _watch_head(self) -> None:
        """Runs the timer while a request's head is awaited; bytes that come do not prolong it."""
        waiting = self.cycle is None or self.cycle.response_complete
        if not waiting:
            self._head_timer = _cancelled(self._head_timer)
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(self.bounds.head_s, self._abort)

    def _watch_reading(self) -> None:
        """Runs the timer while a client has much to read; one that reads slowly is let be."""
        left_bytes = self.transport.get_write_buffer_size()

        def look() -> None:
            if self.transport.get_write_buffer_size() < left_bytes:
                self._watch_reading()
            else:
                self._abort()

        _cancelled(self._stall_timer)
        self._stall_timer = self.loop.call_later(self.bounds.stalled_s, look)

    def _abort(self) -> None:
        self._head_timer = self._stall_timer = None
        # Not `close`, which would wait until the client has read what is still to be sent.
        self.transport.abort()


def _cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """Ends a timer; returns None, which is what is kept of it."""
    if timer is not None:
        timer.cancel()
    return None
