"""A caller of its own process: so many clients, each with a connection, that send one call after the other.

Usage: python -m bench.gateway_load JOB.json; prints percentiles and calls per second as one line of JSON.

The HTTP client is made of nothing but a socket: what a client library takes would be counted for the server's time.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import grpc.aio

from bench.measures import percentiles

_WARM_UP_S: Final = 0.5

Send = Callable[[], Awaitable[None]]


async def main(job: dict[str, Any]) -> None:
    """Runs one job and prints what it measured."""
    open_one = _grpc_client if job["kind"] == "grpc" else _http_client
    clients = [await open_one(job) for _ in range(job["clients"])]
    await asyncio.gather(*(_send_until(send, time.perf_counter() + _WARM_UP_S) for send in clients))
    began = time.perf_counter()
    taken = await asyncio.gather(*(_send_until(send, began + job["seconds"]) for send in clients))
    elapsed_s = time.perf_counter() - began
    seconds = [second for one in taken for second in one]
    print(json.dumps({**percentiles(seconds), "per_s": round(len(seconds) / elapsed_s, 1)}))


async def _send_until(send: Send, until: float) -> list[float]:
    taken = []
    while (began := time.perf_counter()) < until:
        await send()
        taken.append(time.perf_counter() - began)
    return taken


async def _grpc_client(job: dict[str, Any]) -> Send:
    # A connection each, as for HTTP; grpc would share one among channels of the same address.
    channel = grpc.aio.insecure_channel(job["address"], options=[("grpc.use_local_subchannel_pool", 1)])
    method = channel.unary_unary(job["path"], request_serializer=bytes, response_deserializer=bytes)
    request, metadata = bytes.fromhex(job["request_hex"]), (("authorization", f"Bearer {job['token']}"),)

    async def send() -> None:
        await method(request, metadata=metadata, timeout=30)

    await send()
    return send


async def _http_client(job: dict[str, Any]) -> Send:
    host, _, port = job["address"].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = job["body"].encode()
    head = (
        f"POST {job['path']} HTTP/1.1\r\nHost: {job['address']}\r\nAuthorization: Bearer {job['token']}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    request = head.encode() + body

    async def send() -> None:
        writer.write(request)
        answered = await reader.readuntil(b"\r\n\r\n")
        status, _, fields = answered.partition(b"\r\n")
        if b" 200 " not in status:
            sys.exit(f"bench: {status.decode()}")
        await reader.readexactly(_length(fields.lower()))

    await send()
    return send


def _length(fields: bytes) -> int:
    _, found, rest = fields.partition(b"content-length:")
    if not found:
        sys.exit("bench: an answer does not say its length")
    return int(rest.partition(b"\r\n")[0])


if __name__ == "__main__":
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text("utf-8"))))
