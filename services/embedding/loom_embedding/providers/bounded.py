"""Bounds what a provider's answer may take of this process's memory, also where it is packed.

The HTTP client reads a body whole, and unpacks a megabyte of gzip to a gigabyte on the event loop: one answer would
take every call down with it.
"""

import zlib
from collections.abc import AsyncIterator
from typing import Final

import httpx2

MAX_ANSWER_BYTES: Final = 32 * 1024 * 1024
"""Most bytes of one answer, unpacked. Source: 100 vectors of width 4096 are 9 MB when each number is written out."""

_ENCODING: Final = "content-encoding"
_PLAIN: Final = frozenset({"", "identity"})
_PACKED: Final = frozenset({"gzip", "x-gzip", "deflate"})
# What zlib calls a stream that begins with either header.
_ANY_HEADER: Final = zlib.MAX_WBITS | 32


def bound_answers(client: httpx2.AsyncClient, max_bytes: int = MAX_ANSWER_BYTES) -> None:
    """Makes `client` break off an answer of more than `max_bytes`, as if its connection had failed."""

    async def ask(request: httpx2.Request) -> None:
        request.headers["accept-encoding"] = "gzip, deflate"

    async def bound(response: httpx2.Response) -> None:
        stream = response.stream
        if not isinstance(stream, httpx2.AsyncByteStream):
            return
        encoding = response.headers.get(_ENCODING, "").strip().lower()
        if encoding not in _PLAIN | _PACKED:
            raise httpx2.DecodingError(
                "The answer is packed in a way that was not asked for.", request=response.request
            )
        if encoding in _PACKED:
            del response.headers[_ENCODING]  # else the client would unpack it again
        response.stream = _Bounded(stream, response.request, max_bytes, packed=encoding in _PACKED)

    hooks = client.event_hooks
    # First of those of answers: another one may read the body.
    client.event_hooks = {**hooks, "request": [*hooks["request"], ask], "response": [bound, *hooks["response"]]}


class _Bounded(httpx2.AsyncByteStream):
    def __init__(
        self, stream: httpx2.AsyncByteStream, request: httpx2.Request, max_bytes: int, *, packed: bool
    ) -> None:
        self._stream = stream
        self._request = request
        self._left = max_bytes
        self._unpacker = zlib.decompressobj(_ANY_HEADER) if packed else None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            plain = chunk if self._unpacker is None else self._unpacked(chunk)
            self._left -= len(plain)
            if self._left < 0:
                raise httpx2.DecodingError("The answer is longer than any that was asked for.", request=self._request)
            yield plain
        if self._unpacker is not None and not self._unpacker.eof:
            raise httpx2.DecodingError("The packed answer broke off.", request=self._request)

    async def aclose(self) -> None:
        await self._stream.aclose()

    def _unpacked(self, chunk: bytes) -> bytes:
        assert self._unpacker is not None
        try:
            return self._unpacker.decompress(chunk, self._left + 1)
        except zlib.error:
            raise httpx2.DecodingError("The answer is not packed as it says.", request=self._request) from None
