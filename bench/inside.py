"""What a call costs where all services share a process, as under `loom up`: no socket lies between two of them.

Usage: python -m bench.inside embedding|llm JOB, where JOB is a file that names what is asked. It is a process of its
own, since an engine is opened once in a process; `measured` starts it.
"""

# The engine is loaded first, on the main thread.
from loom_common.clickhouse.engine import EmbeddedEngine as _Engine  # noqa: F401, I001

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import openai

from bench.measures import percentiles
from bench.references import Embedder
from bench.server import WORK, until_calibrated
from loom.embedding.v1 import embedding_pb2 as embedding_pb
from loom.embedding.v1 import embedding_pb2_grpc
from loom.llm.v1 import llm_pb2 as llm_pb
from loom.llm.v1 import llm_pb2_grpc
from loom_cli import in_process, keys, ports
from loom_cli.plan import StartPlan
from loom_cli.start import clickhouse_url
from loom_common import event_loop
from loom_common.attribution import Attribution
from loom_common.auth.service_credentials import ServiceKey
from loom_common.call import Call, bind
from loom_common.channel import open_channel
from loom_common.clickhouse import ClickHouseSettings, open_clickhouse

_ROUNDS: Final = 200
_SETTLED_S: Final = 2.0


def measured(service: str, job: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    """Measures in a process of its own, with `variables` as its settings beside the defaults."""
    WORK.mkdir(exist_ok=True)
    path = WORK / f"inside-{service}.json"
    path.write_text(json.dumps(job), "utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LOOM_")} | dict(variables)
    command = [sys.executable, "-m", "bench.inside", service, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)
    path.unlink()
    if done.returncode:
        sys.exit(f"bench: {done.stderr.strip()[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@asynccontextmanager
async def _services() -> AsyncIterator[StartPlan]:
    with tempfile.TemporaryDirectory(prefix="loom-bench-", ignore_cleanup_errors=True) as folder:
        directory = Path(folder)
        plan = StartPlan(directory, ports.choose(0), keys.ensure(directory), clickhouse_url(directory))
        store = ClickHouseSettings.load(plan.variables("gateway"))
        async with (
            open_clickhouse(plan.clickhouse_url, database=store.database, settings=store) as ch,
            in_process.running(in_process.load_settings(plan), ch),
        ):
            await asyncio.sleep(_SETTLED_S)
            yield plan


async def _embedding(job: Mapping[str, Any]) -> dict[str, Any]:
    questions: list[str] = job["questions"]
    library = Embedder(job["model"])
    async with (
        _services() as plan,
        open_channel(plan.grpc["embedding"], ServiceKey.load(plan.data_dir / "keys" / "memory.jwk")) as channel,
    ):
        await asyncio.to_thread(until_calibrated, plan.http_url)
        stub = embedding_pb2_grpc.EmbeddingServiceStub(channel)

        # Without an organisation nothing is kept between calls; with one, a query may be.
        uncached, cached = Call(op="bench"), Call(op="bench", attribution=Attribution(org="default", feature="bench"))

        async def query(text: str, call: Call = uncached) -> None:
            with bind(call):
                await stub.EmbedQuery(embedding_pb.EmbedQueryRequest(text=text))

        async def directly(text: str) -> None:
            await asyncio.to_thread(library, [text])

        times: dict[str, list[float]] = {"service": [], "library": []}
        for text in questions[:_ROUNDS]:
            times["service"].append(await _seconds(query(text)))
            times["library"].append(await _seconds(directly(text)))
        await query("a question that is asked again", cached)
        hits = [await _seconds(query("a question that is asked again", cached)) for _ in range(_ROUNDS)]
    return {
        **{name: percentiles(taken) for name, taken in times.items()},
        "added_ms": _added_ms(times["library"], times["service"]),
        "cache_hit": percentiles(hits),
    }


async def _llm(job: Mapping[str, Any]) -> dict[str, Any]:
    prompt: str = job["prompt"]
    async with (
        openai.AsyncOpenAI(api_key=job["key"], base_url=job["url"], max_retries=0) as sdk,
        _services() as plan,
        open_channel(plan.grpc["llm"], ServiceKey.load(plan.data_dir / "keys" / "memory.jwk")) as channel,
    ):
        stub = llm_pb2_grpc.LlmServiceStub(channel)

        async def directly() -> None:
            await sdk.chat.completions.create(
                model=job["llm"], messages=[{"role": "user", "content": prompt}], max_completion_tokens=64
            )

        async def through(cache: llm_pb.CacheUse | None = None) -> None:
            with bind(Call(op="bench", attribution=Attribution("bench", "bench", feature="bench"))):
                await stub.Complete(llm_pb.CompleteRequest(user=prompt, max_tokens=64, cache=cache))

        times: dict[str, list[float]] = {"sdk": [], "loom": []}
        for _ in range(2 * _ROUNDS):
            times["sdk"].append(await _seconds(directly()))
            times["loom"].append(await _seconds(through()))
        cached = llm_pb.CacheUse(enabled=True)
        await through(cached)
        hits = [await _seconds(through(cached)) for _ in range(_ROUNDS)]
    return {
        **{name: percentiles(taken) for name, taken in times.items()},
        "added_ms": _added_ms(times["sdk"], times["loom"]),
        "cache_hit": percentiles(hits),
    }


def _added_ms(plain: Sequence[float], through: Sequence[float]) -> float:
    return round(1000 * float(np.median(through) - np.median(plain)), 2)


async def _seconds(work: Awaitable[None]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


if __name__ == "__main__":
    _MEASURES = {"embedding": _embedding, "llm": _llm}
    print(json.dumps(event_loop.run(_MEASURES[sys.argv[1]](json.loads(Path(sys.argv[2]).read_text("utf-8"))))))
