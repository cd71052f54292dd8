"""gzip and zstd: bodies that come compressed, read within a bound, and answers compressed for those who ask."""

import asyncio
import gzip
import zlib
from typing import Final, Protocol

from backports import zstd
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from loom_common.errors import MalformedRequest

GZIP: Final = "gzip"
ZSTD: Final = "zstd"
IDENTITY: Final = "identity"
CODINGS: Final = (ZSTD, GZIP)
"""What is understood, the best first."""

# The most that RFC 9659 lets a sender of the `zstd` coding ask its receiver to hold.
_ZSTD_WINDOW_LOG: Final = 23
# Source: chosen. Levels that cost less time than they save on a network of 100 Mbit/s.
_GZIP_LEVEL: Final = 4
_ZSTD_LEVEL: Final = 3
# Below this a packet holds the answer either way.
_MIN_BYTES: Final = 1400
# Above this compressing takes longer than the event loop should wait.
_IN_THREAD_BYTES: Final = 128 * 1024
_TEXTS: Final = ("application/json", "text/")
_STREAMED: Final = "text/event-stream"


class _Decoder(Protocol):
    """What zlib's and zstd's incremental decoders share."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


def decoded(body: bytes, coding: str, limit_bytes: int) -> bytes | None:
    """Returns a body without its coding, or None once it is longer than the limit.

    No more than the limit is ever unpacked, however much more the body says it holds.

    Args:
        body: As it came.
        coding: Value of `Content-Encoding`.
        limit_bytes: Largest body that is taken.

    Raises:
        MalformedRequest: The coding is none of ours, or the body is not in it.
    """
    name = coding.strip().lower()
    if name in ("", IDENTITY) or not body:
        return body
    if name not in CODINGS:
        raise MalformedRequest(
            "The body's Content-Encoding is not understood; send gzip, zstd or none.", detail={"accepted": "gzip, zstd"}
        )
    decoder = _decoder(name)
    try:
        found = decoder.decompress(body, limit_bytes + 1)
    except (zlib.error, zstd.ZstdError):
        raise MalformedRequest(f"The body is not {name}, as its Content-Encoding says.") from None
    if len(found) > limit_bytes:
        return None
    # What follows the end is refused too: one side would read it and the other not.
    if not decoder.eof or decoder.unused_data:
        raise MalformedRequest(f"The body is not one whole {name} stream.")
    return found


def chosen_coding(accepted: str) -> str:
    """Returns the coding of an answer by the request's `Accept-Encoding`: `zstd`, `gzip` or `identity`."""
    if not accepted:
        return IDENTITY
    weights: dict[str, float] = {}
    for part in accepted.lower().split(","):
        name, _, parameters = part.partition(";")
        weights[name.strip()] = _weight(parameters)
    best = max(CODINGS, key=lambda name: weights.get(name, 0.0))
    return best if weights.get(best, 0.0) > 0 else IDENTITY


class CompressedAnswers:
    """Compresses answers whose bodies come whole; what is streamed goes on as it is."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        coding = chosen_coding(Headers(scope=scope).get("accept-encoding", ""))
        start: Message | None = None

        async def compressed(message: Message) -> None:
            nonlocal start
            # The reader of a stream is to know at once that it was let in: the first event may be long in coming.
            if message["type"] == "http.response.start" and not _is_streamed(message):
                start = message
                return
            if start is not None:
                opening, start = start, None
                message = await _opened(opening, message, coding)
                await send(opening)
            await send(message)

        await self._app(scope, receive, compressed)


async def _opened(start: Message, body: Message, coding: str) -> Message:
    """Returns the first message of a body, compressed where it may be; `start` gets the headers that this takes."""
    headers = MutableHeaders(raw=start["headers"])
    # A range counts the bytes of what is not packed.
    if not headers.get("content-type", "").startswith(_TEXTS) or "content-range" in headers:
        return body
    headers.add_vary_header("Accept-Encoding")
    content: bytes = body.get("body", b"")
    whole = not body.get("more_body", False)
    if coding == IDENTITY or not whole or len(content) < _MIN_BYTES or "content-encoding" in headers:
        return body
    if len(content) > _IN_THREAD_BYTES:
        packed = await asyncio.to_thread(_encoded, content, coding)
    else:
        packed = _encoded(content, coding)
    headers["Content-Encoding"] = coding
    headers["Content-Length"] = str(len(packed))
    return {**body, "body": packed}


def _is_streamed(start: Message) -> bool:
    return Headers(raw=start["headers"]).get("content-type", "").startswith(_STREAMED)


def _encoded(content: bytes, coding: str) -> bytes:
    if coding == ZSTD:
        return zstd.compress(content, level=_ZSTD_LEVEL)
    return gzip.compress(content, compresslevel=_GZIP_LEVEL, mtime=0)


def _decoder(coding: str) -> _Decoder:
    if coding == ZSTD:
        return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG})
    return zlib.decompressobj(zlib.MAX_WBITS | 16)


def _weight(parameters: str) -> float:
    name, _, value = parameters.strip().partition("=")
    if name.strip() != "q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0
