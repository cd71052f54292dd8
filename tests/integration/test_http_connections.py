"""Connections of clients that are slow, silent or many, over real sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import Receive, Scope, Send

from loom_gateway.http.connections import ConnectionLimits
from loom_gateway.listener import serving_http

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
LARGE = 16 * 1024 * 1024
# Far above the limits that are tested, far below the test's own.
SOON_S = 10.0


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
    body = b"x" * LARGE if scope["path"] == "/large" else b"ok"
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def served(limits: ConnectionLimits) -> AsyncIterator[str]:
    async with serving_http(app, "127.0.0.1:0", drain_s=0.1, limits=limits) as address:
        yield address


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()


async def ended(reader: asyncio.StreamReader) -> bytes:
    """Returns what comes until the server ends the connection."""
    async with asyncio.timeout(SOON_S):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


async def answer(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(SOON_S):
        return await reader.readuntil(b"ok")


async def test_a_connection_that_sends_no_request_or_half_of_one_is_ended() -> None:
    async with served(ConnectionLimits(head_s=0.2)) as address:
        async with connected(address) as (reader, _):
            assert await ended(reader) == b""
        async with connected(address) as (reader, writer):
            writer.write(GET[:-2])
            assert await ended(reader) == b""


async def test_a_byte_at_a_time_does_not_prolong_the_wait_for_a_request() -> None:
    async with served(ConnectionLimits(head_s=0.3)) as address, connected(address) as (reader, writer):

        async def drip() -> None:
            for byte in GET * 100:
                writer.write(bytes([byte]))
                await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        assert await ended(reader) == b""
        dripping.cancel()


async def test_the_second_request_of_a_connection_is_waited_for_no_longer_than_the_first() -> None:
    async with served(ConnectionLimits(head_s=0.3)) as address, connected(address) as (reader, writer):
        writer.write(GET)
        assert (await answer(reader)).startswith(b"HTTP/1.1 200")
        writer.write(GET[:10])
        assert await ended(reader) == b""


async def test_an_idle_connection_is_kept_for_its_time_and_then_ended() -> None:
    limits = ConnectionLimits(head_s=0.2, keep_alive_s=1)
    async with served(limits) as address, connected(address) as (reader, writer):
        writer.write(GET)
        await answer(reader)
        began = asyncio.get_running_loop().time()
        assert await ended(reader) == b""
        assert asyncio.get_running_loop().time() - began > 0.9


async def test_a_client_that_does_not_read_its_answer_is_cut_off_and_one_that_reads_slowly_is_not() -> None:
    async with served(ConnectionLimits(stalled_s=0.3)) as address:
        async with connected(address) as (reader, writer):
            writer.write(GET.replace(b"/ ", b"/large "))
            await asyncio.sleep(1.0)  # reads nothing for longer than it may
            assert len(await ended(reader)) < LARGE
        async with connected(address) as (reader, writer):
            writer.write(GET.replace(b"/ ", b"/large ").replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            received = 0
            while piece := await reader.read(4 * 1024 * 1024):
                received += len(piece)
                await asyncio.sleep(0.005)
            assert received > LARGE


async def test_connections_beyond_the_most_are_told_so_and_closed_and_others_go_on() -> None:
    async with served(ConnectionLimits(max_connections=1)) as address, connected(address) as (reader, writer):
        writer.write(GET)
        await answer(reader)
        async with connected(address) as (second, second_writer):
            second_writer.write(GET)
            told = await ended(second)
        assert told.startswith(b"HTTP/1.1 503")
        assert b"Retry-After: 1\r\n" in told
        assert b'"code":"OVERLOADED"' in told
        writer.write(GET)
        assert (await answer(reader)).startswith(b"HTTP/1.1 200")


async def test_a_connection_is_closed_after_its_last_request_and_the_client_is_told_so() -> None:
    limits = ConnectionLimits(max_requests=2)
    async with served(limits) as address, connected(address) as (reader, writer):
        writer.write(GET)
        assert b"connection: close" not in (await answer(reader)).lower()
        writer.write(GET)
        assert b"connection: close" in (await ended(reader)).lower()


async def test_what_is_no_http_is_answered_in_the_shape_of_every_error() -> None:
    async with served(ConnectionLimits()) as address:
        for sent in (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n", b"x" * 100_000):
            async with connected(address) as (reader, writer):
                writer.write(sent)
                told = await ended(reader)
            assert told.startswith(b"HTTP/1.1 400 ")
            assert b'"code":"MALFORMED_REQUEST"' in told


async def test_requests_that_are_sent_ahead_are_answered_in_order_and_counted() -> None:
    async with served(ConnectionLimits(max_requests=3)) as address, connected(address) as (reader, writer):
        writer.write(GET * 3)
        assert (await ended(reader)).count(b"HTTP/1.1 200") == 3


async def test_a_client_that_sends_more_ahead_than_may_wait_gets_its_first_answer_and_the_end() -> None:
    async with served(ConnectionLimits(max_ahead=4)) as address, connected(address) as (reader, writer):
        writer.write(GET * 6)
        told = await ended(reader)
    assert told.startswith(b"HTTP/1.1 200")
    assert told.count(b"HTTP/1.1 ") == 1
    async with served(ConnectionLimits(max_ahead=4)) as address, connected(address) as (reader, writer):
        writer.write(GET * 4 + GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert (await ended(reader)).count(b"HTTP/1.1 200") == 5


async def test_what_is_no_http_behind_a_request_takes_nothing_from_its_answer() -> None:
    async with served(ConnectionLimits()) as address, connected(address) as (reader, writer):
        writer.write(GET + b"\x00\x01garbage\r\n\r\n" + GET)
        told = await ended(reader)
    assert told.startswith(b"HTTP/1.1 200")
    assert told.count(b"HTTP/1.1 ") == 1


async def test_a_body_that_breaks_off_its_own_framing_is_answered_as_no_http() -> None:
    async def reading(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            while (message := await receive()).get("more_body"):
                pass
            if message["type"] == "http.disconnect":
                return
        await app(scope, receive, send)

    async with serving_http(reading, "127.0.0.1:0", drain_s=0.1) as address, connected(address) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nx")
        told = await ended(reader)
    assert told.startswith(b"HTTP/1.1 400")
    assert told.count(b"HTTP/1.1 ") == 1


async def test_a_head_without_an_end_is_refused_before_it_fills_the_memory() -> None:
    async with served(ConnectionLimits(head_bytes=16_384)) as address, connected(address) as (reader, writer):
        writer.write(GET[:-2] + b"X-Long: ")
        for _ in range(64):
            writer.write(b"x" * 4096)
        told = await ended(reader)
        assert told == b"" or told.startswith(b"HTTP/1.1 400 ")
    async with served(ConnectionLimits()) as address, connected(address) as (reader, writer):
        writer.write(GET[:-2] + b"X-Long: " + b"x" * 30_000 + b"\r\n\r\n")
        assert (await answer(reader)).startswith(b"HTTP/1.1 200")


async def test_a_trailer_is_no_header() -> None:
    seen: list[bytes] = []

    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            while (await receive()).get("more_body"):
                pass
            seen.extend(name for name, _ in scope["headers"])
        await app(scope, receive, send)

    async with serving_http(noting, "127.0.0.1:0", drain_s=0.1) as address, connected(address) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n")
        writer.write(b"X-Loom-Namespace: other\r\n\r\n")
        assert (await answer(reader)).startswith(b"HTTP/1.1 200")
    assert seen[:2] == [b"host", b"transfer-encoding"]
    assert b"x-loom-namespace" not in seen


async def test_a_client_that_leaves_while_its_next_request_waits_ends_the_one_that_is_answered() -> None:
    gone = asyncio.Event()

    async def waiting(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()

    async with serving_http(waiting, "127.0.0.1:0", drain_s=0.1) as address:
        async with connected(address) as (_, writer):
            writer.write(GET * 2)
            await writer.drain()
            await asyncio.sleep(0.1)  # until the server has read both
        async with asyncio.timeout(SOON_S):
            await gone.wait()


async def test_a_request_that_asks_for_another_protocol_is_answered_in_this_one() -> None:
    async with served(ConnectionLimits()) as address:
        for asked in (b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n", b""):
            async with connected(address) as (reader, writer):
                writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n" + asked + b"\r\n{}")
                assert (await answer(reader)).startswith(b"HTTP/1.1 200")
