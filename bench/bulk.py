"""Bulk import: memories per second with vectors given, and with vectors made, beside what the embedder does alone."""

import asyncio
import base64
import json
import math
import random
import struct
import time
from collections.abc import Iterator
from typing import Any, Final

from bench import results
from bench.server import RunningLoom, loom
from loom.embedding.v1 import embedding_pb2 as pb
from loom.embedding.v1 import embedding_pb2_grpc as pb_grpc
from loom_client import Loom
from loom_common.auth.service_credentials import ServiceKey
from loom_common.call import Call, bind
from loom_common.channel import open_channel

GIVEN: Final = 100_000
MADE: Final = 3_000
_ALONE: Final = 1_500
_AT_ONCE: Final = 256
_WORDS: Final = tuple(
    "the quick brown fox jumps over lazy dog while river flows under bridge near old town where people walk and talk "  # noqa: SIM905
    "about weather food music travel work family garden letter winter summer doctor train coffee market window".split()
)


def run(given: int = GIVEN) -> None:
    """Measures both over HTTP, as the Python client sends them, and saves the figures.

    Args:
        given: Number of memories with vectors.
    """
    with loom() as server, Loom(server.http_url, server.token, timeout_s=600) as client:
        model, dim = _served(client)
        figures: dict[str, Any] = {"model": model, "dim": dim}
        figures["given"] = _imported(server, client, list(_lines(given, "given", model, dim)))
        made = _imported(server, client, list(_lines(MADE, "made")))
        alone = _embedder_alone(server)
        share = round(made["per_s"] / alone, 3)
        figures["made"] = {**made, "embedder_per_s": round(alone, 1), "share_of_embedder": share}
        figures["again"] = _imported(server, client, list(_lines(given // 10, "given", model, dim)))
        figures["exported"] = _exported(client)
    results.save("bulk", figures)


def _lines(count: int, name: str, model: str = "", dim: int = 0) -> Iterator[bytes]:
    draw = random.Random(7)
    for number in range(count):
        text = f"{' '.join(draw.choices(_WORDS, k=25))} {number}"
        told: dict[str, Any] = {"key": f"{name}-{number:06}", "value": text, "user_id": f"u{number % 50}"}
        if dim:
            numbers = [draw.gauss(0, 1) for _ in range(dim)]
            length = math.sqrt(sum(value * value for value in numbers))
            raw = struct.pack(f"<{dim}f", *(value / length for value in numbers))
            chunk = {"start": 0, "end": len(text), "vector": base64.b64encode(raw).decode()}
            told["vectors"] = {"model": model, "dim": dim, "chunks": [chunk]}
        yield json.dumps(told).encode()


def _served(client: Loom) -> tuple[str, int]:
    """Returns the served model, as an export of one memory names it."""
    client.memory.set("the first memory", key="first")
    line = next(iter(client.export(with_vectors=True))).line
    vectors = json.loads(line)["vectors"]
    return vectors["model"], vectors["dim"]


def _imported(server: RunningLoom, client: Loom, lines: list[bytes]) -> dict[str, Any]:
    began = time.perf_counter()
    # The same object each time; what it says at the end is all.
    done = list(client.import_(lines))[-1]
    took_s = time.perf_counter() - began
    assert not done.refused, done.refused[:3]
    return {
        "count": len(lines),
        "stored": done.stored,
        "seconds": round(took_s, 2),
        "per_s": round(len(lines) / took_s, 1),
        "rss_mb": server.rss_bytes() >> 20,
    }


def _exported(client: Loom) -> dict[str, Any]:
    began = time.perf_counter()
    count = sum(1 for _ in client.export(with_vectors=True))
    took_s = time.perf_counter() - began
    return {"count": count, "seconds": round(took_s, 2), "per_s": round(count / took_s, 1)}


def _embedder_alone(server: RunningLoom) -> float:
    """Returns how many such texts the embedding service embeds in a second, in calls of 256, with nothing beside it."""
    texts = [json.loads(line)["value"] for line in _lines(_ALONE, "alone")]
    return asyncio.run(_embedded_per_s(server, texts))


async def _embedded_per_s(server: RunningLoom, texts: list[str]) -> float:
    key = ServiceKey.load(server.data_dir / "keys" / "memory.jwk")
    async with open_channel(server.grpc["embedding"], key, deadline_s=600.0) as channel:
        stub = pb_grpc.EmbeddingServiceStub(channel)
        # Without an organisation nothing is kept between calls.
        with bind(Call(op="bench")):
            await stub.EmbedMany(pb.EmbedManyRequest(texts=texts[:32]))
            began = time.perf_counter()
            for first in range(0, len(texts), _AT_ONCE):
                await stub.EmbedMany(pb.EmbedManyRequest(texts=texts[first : first + _AT_ONCE]))
            return len(texts) / (time.perf_counter() - began)
