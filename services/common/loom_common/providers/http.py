"""The HTTP client of providers: what an answer may take of this process's memory, and where a request may be led.

Without it, a body is read whole and a megabyte of gzip becomes a gigabyte on the event loop, so that one answer takes
every call down; and a redirect carries a prompt to whoever it names.
"""

import asyncio
import re
import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Final

import httpx2
import structlog

MAX_ANSWER_BYTES: Final = 32 * 1024 * 1024
"""Most bytes of one answer, unpacked. Source: 100 vectors of width 4096 are 9 MB when each number is written out."""

MAX_STREAM_BYTES: Final = 256 * 1024 * 1024
"""Most bytes of one stream of events. Source: the longest answer that may be asked for, 131,072 tokens, in events of
300 bytes each is 40 MB, and hidden reasoning is streamed too."""

MAX_EVENT_BYTES: Final = 2 * 1024 * 1024
"""Most bytes of one event. Source: servers exist that send all arguments of a call in one, and these may be 1 MiB."""

# Source: chosen. An event is one to three lines; an SDK copies the whole event anew for each of its lines.
_MOST_EVENT_LINES: Final = 1024
# Source: chosen. What is unpacked at once; other calls get their turn after each.
_PIECE_BYTES: Final = 16 * 1024

_EVENTS: Final = "text/event-stream"
_EVENT_END: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LINE_ENDS: Final = b"\r\n"

_ENCODING: Final = "content-encoding"
_PLAIN: Final = frozenset({"", "identity"})
_PACKED: Final = frozenset({"gzip", "x-gzip", "deflate"})
# What zlib calls a stream that begins with either header.
_ANY_HEADER: Final = zlib.MAX_WBITS | 32

_log = structlog.get_logger(__name__)


class ProviderHttp(httpx2.AsyncClient):
    """Sends requests to one provider. The SDKs of openai and anthropic take it as `http_client`.

    An answer beyond the bounds is broken off, as if its connection had failed. A redirect is followed on the origin
    that was asked; one that leads elsewhere is the answer itself, since the request holds prompts and keys.

    Args:
        timeout_s: Longest silence of the provider.
        connect_timeout_s: Time to connect; no longer than that silence.
    """

    def __init__(self, *, timeout_s: float, connect_timeout_s: float) -> None:
        super().__init__(
            timeout=httpx2.Timeout(timeout_s, connect=min(timeout_s, connect_timeout_s)),
            follow_redirects=True,
            limits=httpx2.Limits(max_connections=1000, max_keepalive_connections=100),
            event_hooks={"request": [_ask_packed], "response": [_bound, _keep_to_origin]},
        )


def origin(url: httpx2.URL) -> str:
    """Returns scheme, host and port of an address."""
    return f"{url.scheme}://{url.netloc.decode('ascii')}"


async def _ask_packed(request: httpx2.Request) -> None:
    request.headers["accept-encoding"] = "gzip, deflate"


async def _bound(response: httpx2.Response) -> None:
    stream, request = response.stream, response.request
    if not isinstance(stream, httpx2.AsyncByteStream):
        return
    encoding = response.headers.get(_ENCODING, "").strip().lower()
    if encoding not in _PLAIN | _PACKED:
        raise httpx2.DecodingError("The answer is packed in a way that was not asked for.", request=request)
    if encoding in _PACKED:
        del response.headers[_ENCODING]  # else the client would unpack it again
    events = response.headers.get("content-type", "").strip().lower().startswith(_EVENTS)
    response.stream = _Bounded(stream, request, packed=encoding in _PACKED, events=events)


async def _keep_to_origin(response: httpx2.Response) -> None:
    if not response.has_redirect_location:
        return
    asked = response.request.url
    try:
        target = origin(asked.join(response.headers["location"]))
    except (httpx2.InvalidURL, UnicodeError):
        target = ""
    if target != origin(asked):
        _log.warning("provider_redirects_elsewhere", origin=origin(asked), target=target)
        del response.headers["location"]


class _Bounded(httpx2.AsyncByteStream):
    """An answer's body, unpacked, as far as it keeps within the bounds."""

    def __init__(self, stream: httpx2.AsyncByteStream, request: httpx2.Request, *, packed: bool, events: bool) -> None:
        self._stream = stream
        self._request = request
        self._left = MAX_STREAM_BYTES if events else MAX_ANSWER_BYTES
        self._event = _EventBound() if events else None
        self._unpacker = zlib.decompressobj(_ANY_HEADER) if packed else None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            if self._unpacker is None:
                yield self._checked(chunk)
                continue
            for piece in self._unpacked(self._unpacker, chunk):
                yield self._checked(piece)
                await asyncio.sleep(0)  # a reader that finds all it wants would else never let another call run
        if self._unpacker is not None and not self._unpacker.eof:
            raise self._broken("The packed answer broke off.")

    async def aclose(self) -> None:
        await self._stream.aclose()

    def _checked(self, piece: bytes) -> bytes:
        self._left -= len(piece)
        if self._left < 0 or (self._event is not None and not self._event.holds(piece)):
            raise self._broken("The answer is longer than any that was asked for.")
        return piece

    def _unpacked(self, unpacker: "zlib._Decompress", packed: bytes) -> Iterator[bytes]:
        while True:
            try:
                piece = unpacker.decompress(packed, _PIECE_BYTES)
            except zlib.error:
                raise self._broken("The answer is not packed as it says.") from None
            packed = unpacker.unconsumed_tail
            if piece:
                yield piece
            if not packed and len(piece) < _PIECE_BYTES:
                return

    def _broken(self, words: str) -> httpx2.DecodingError:
        return httpx2.DecodingError(words, request=self._request)


class _EventBound:
    """Bounds each event of a stream, which readers collect until it ends."""

    def __init__(self) -> None:
        self._bytes = 0
        self._lines = 0
        self._tail = b""

    def holds(self, piece: bytes) -> bool:
        """Takes the next piece; returns whether the events in it keep within the bounds."""
        # With the line ends before it: an event's end may come in two pieces.
        joined = self._tail + piece
        parts = _EVENT_END.split(joined)
        self._tail = joined[len(joined.rstrip(_LINE_ENDS)) :][-3:]
        for at, part in enumerate(parts):
            if at:
                self._bytes = self._lines = 0
            self._bytes += len(part)
            self._lines += part.count(b"\n") + part.count(b"\r")
            if self._bytes > MAX_EVENT_BYTES or self._lines > _MOST_EVENT_LINES:
                return False
        return True
