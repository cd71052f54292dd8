"""Reads request bodies: bounded as they stream in, in time and in size."""

import asyncio
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Receive

from loom_common.errors import Cancelled, DeadlineExceeded, MalformedRequest, PayloadTooLarge
from loom_gateway.http.coding import decoded

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
# Source: chosen. Slower than that is no network, but somebody who wants the connection held.
BODY_S: Final = 30.0

# A client that is still sending when the connection closes may never see the answer, so some more is read and dropped.
_DRAINED_BYTES: Final = 16 * 1024 * 1024
_DRAIN_S: Final = 5.0
_JSON: Final = "application/json"


async def read_json_body(
    headers: Headers, receive: Receive, *, limit_bytes: int = MAX_BODY_BYTES, limit_s: float = BODY_S
) -> bytes:
    """Returns the body of a request that says it is JSON, without its gzip or zstd.

    Args:
        headers: Headers of the request.
        receive: Where its body comes from.
        limit_bytes: Largest body that is taken.
        limit_s: Units: seconds that the body may take to come.

    Raises:
        MalformedRequest: It has a body that is not called JSON, or is not in the coding that it says.
        PayloadTooLarge: The body is longer than `limit_bytes`, as it comes or unpacked, told or not.
        DeadlineExceeded: The body did not come in time.
        Cancelled: The client went away.
    """
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit_bytes:
        if "expect" not in headers:
            await _drain(receive)
        raise _too_large(limit_bytes)
    sent = await read_body(receive, limit_bytes=limit_bytes, limit_s=limit_s)
    if not sent:
        return sent
    _check_kind(headers)
    body = decoded(sent, ",".join(headers.getlist("content-encoding")), limit_bytes)
    if body is None:
        raise _too_large(limit_bytes)
    return body


async def read_body(receive: Receive, *, limit_bytes: int, limit_s: float = BODY_S) -> bytes:
    """Returns the body of a request as it comes.

    Raises:
        PayloadTooLarge: It is longer than `limit_bytes`.
        DeadlineExceeded: It did not come within `limit_s` seconds.
        Cancelled: The client went away.
    """
    try:
        async with asyncio.timeout(limit_s):
            body = await _collect(receive, limit_bytes)
    except TimeoutError:
        raise DeadlineExceeded(f"The body did not come within {limit_s:g} seconds.") from None
    if body is None:
        await _drain(receive)
        raise _too_large(limit_bytes)
    return body


def _check_kind(headers: Headers) -> None:
    kind, _, parameters = headers.get("content-type", "").partition(";")
    if kind.strip().lower() != _JSON:
        raise MalformedRequest(f"The body must be JSON: send `Content-Type: {_JSON}`.")
    charset = parameters.strip().lower().removeprefix("charset=").strip('"')
    if charset not in ("", "utf-8", "utf8"):
        raise MalformedRequest("The body must be UTF-8.")


def _too_large(limit_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"The body is larger than {limit_bytes} bytes; send less at once.", detail={"max_bytes": limit_bytes}
    )


async def _collect(receive: Receive, limit_bytes: int) -> bytes | None:
    """Returns the body, or None once it is longer than the limit."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Cancelled("The client went away before its body was read.")
        part = message.get("body", b"")
        size += len(part)
        if size > limit_bytes:
            return None
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


async def _drain(receive: Receive) -> None:
    dropped = 0
    try:
        async with asyncio.timeout(_DRAIN_S):
            while dropped < _DRAINED_BYTES:
                message = await receive()
                dropped += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return
