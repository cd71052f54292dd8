"""Embedding: what does the service add to the library that it is built on?

The service is called over gRPC in a process of its own; the library is fastembed, loaded in this process as its users
load it, over the same files. Both get the same texts in turn, so that a noisy machine disturbs both alike.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.progress import track

from bench import inside, results
from bench.datasets import locomo
from bench.measures import percentiles
from bench.references import Embedder
from bench.server import RunningLoom, loom, until_calibrated
from loom.embedding.v1 import embedding_pb2 as pb
from loom.embedding.v1 import embedding_pb2_grpc as pb_grpc
from loom_common.attribution import Attribution
from loom_common.auth.service_credentials import ServiceKey
from loom_common.call import Call, bind
from loom_common.channel import open_channel
from loom_embedding.domain.models import LOCAL_MODELS
from loom_embedding.providers.model_files import shared_models_dir
from loom_embedding.settings import EmbeddingSettings

_ROUNDS_OF: Final = {1: 40, 4: 40, 16: 20, 64: 8}
"""Rounds by texts in a batch."""
_LENGTHS: Final = {"short": 40, "turn": 140, "long": 900}
_CALLERS: Final = (1, 4, 16)
_CALLER_TEXTS: Final = 200
_INSIDE: Final = 200


def run(data: Path) -> None:
    """Measures the default model, and the memory of each model whose files are at hand."""
    texts = [turn.text for talk in locomo(data) for turn in talk.turns if turn.text]
    questions = [question.text for talk in locomo(data) for question in talk.questions]
    with loom(processes=True) as server:
        model = server.model_folder()
        library = Embedder(str(model))
        until_calibrated(server.http_url)
        figures = asyncio.run(_measured(server, library, texts, questions))
    figures["inside"] = inside.measured("embedding", {"questions": questions[-_INSIDE:], "model": str(model)}, {})
    figures["memory_mb"] = {model: _memory_mb(model) for model in ("fake-ngram-384", *LOCAL_MODELS)}
    results.save("embedding", figures)
    print(json.dumps(figures))


async def _measured(
    server: RunningLoom, library: Embedder, texts: Sequence[str], questions: Sequence[str]
) -> dict[str, Any]:
    key = ServiceKey.load(server.data_dir / "keys" / "memory.jwk")
    # Without an organisation nothing is kept between calls; with one, a query may be.
    uncached, cached = Call(op="bench"), Call(op="bench", attribution=Attribution(org="default", feature="bench"))
    async with open_channel(server.grpc["embedding"], key) as channel:
        stub = pb_grpc.EmbeddingServiceStub(channel)

        async def embed(batch: Sequence[str]) -> None:
            with bind(uncached):
                await stub.EmbedMany(pb.EmbedManyRequest(texts=batch))

        async def query(text: str, call: Call = uncached) -> None:
            with bind(call):
                await stub.EmbedQuery(pb.EmbedQueryRequest(text=text))

        async def directly(batch: Sequence[str]) -> None:
            await asyncio.to_thread(library, batch)

        found: dict[str, Any] = {"threads": EmbeddingSettings().threads, "batches": {}}
        for length, chars in _LENGTHS.items():
            corpus = _of_length(texts, chars)
            for size, rounds in track(_ROUNDS_OF.items(), f"batches of {length} texts", transient=True):
                batches = [corpus[i * size : (i + 1) * size] for i in range(rounds)]
                found["batches"][f"{length} x {size}"] = await _side_by_side(batches, service=embed, library=directly)
        asked = [[text] for text in questions[:200]]
        found["query"] = await _side_by_side(
            asked, service=lambda batch: query(batch[0]), library=lambda batch: directly(batch)
        )
        await query("a question that is asked again", cached)
        found["cache_hit"] = percentiles(
            [await _seconds(query("a question that is asked again", cached)) for _ in range(200)]
        )
        found["callers"] = {str(count): await _callers(query, count, questions) for count in _CALLERS}
        return found


def _of_length(texts: Sequence[str], chars: int) -> list[str]:
    """Returns texts of `chars` characters, cut from the turns of all talks in their order."""
    joined = " ".join(texts)
    needed = max(size * rounds for size, rounds in _ROUNDS_OF.items())
    step = max(1, (len(joined) - chars) // needed)
    return [joined[i * step : i * step + chars] for i in range(needed)]


async def _side_by_side(
    batches: Sequence[Sequence[str]],
    *,
    service: Callable[[Sequence[str]], Awaitable[None]],
    library: Callable[[Sequence[str]], Awaitable[None]],
) -> dict[str, Any]:
    await service(batches[0])
    await library(batches[0])
    times: dict[str, list[float]] = {"service": [], "library": []}
    for number, batch in enumerate(batches):
        pairs = [("service", service), ("library", library)]
        for name, work in pairs if number % 2 else reversed(pairs):
            times[name].append(await _seconds(work(batch)))
    size = len(batches[0])
    medians = {name: float(np.median(taken)) for name, taken in times.items()}
    return {
        **{name: percentiles(taken) for name, taken in times.items()},
        "ratio": round(medians["service"] / medians["library"], 3),
        "added_ms": round((medians["service"] - medians["library"]) * 1000, 2),
        "texts_per_s": {name: round(size / median, 1) for name, median in medians.items()},
    }


async def _callers(query: Callable[[str], Awaitable[None]], count: int, questions: Sequence[str]) -> dict[str, Any]:
    """Returns times and calls per second of `count` callers that ask one question after the other."""
    times: list[float] = []

    async def one(number: int) -> None:
        mine = questions[number::count][: _CALLER_TEXTS // count]
        times.extend([await _seconds(query(question)) for question in mine])

    began = time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(count)))
    return {**percentiles(times), "per_s": round(len(times) / (time.perf_counter() - began), 1)}


async def _seconds(work: Awaitable[None]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


_OPEN_AND_WEIGH: Final = """
import asyncio, sys, psutil
from loom_embedding.model import open_model
from loom_embedding.settings import EmbeddingSettings

async def main():
    async with open_model(EmbeddingSettings(LOOM_EMBEDDING_MODEL=sys.argv[1])) as model:
        await model.embedder.embed_many(["a text of some words"] * 64)
        print(psutil.Process().memory_info().rss >> 20)

asyncio.run(main())
"""


def _memory_mb(model: str) -> int | None:
    """Returns the memory of a process that serves nothing but `model`; None where its files are not at hand."""
    if model in LOCAL_MODELS and not (shared_models_dir() / LOCAL_MODELS[model].folder).exists():
        return None
    done = subprocess.run(
        [sys.executable, "-c", _OPEN_AND_WEIGH, model], capture_output=True, text=True, check=False, timeout=120
    )
    lines = done.stdout.strip().splitlines()
    return int(lines[-1]) if done.returncode == 0 and lines else None
