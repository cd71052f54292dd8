"""Models: what does the llm service add to a call, over the provider's SDK called directly?

The provider is a stand-in that answers at once, so that what is left is the way: SDK and HTTP directly, and gRPC,
gates, the same SDK and HTTP through Loom. Both are called in turn, in blocks, from one process, in one run.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from statistics import median
from typing import Any, Final

import grpc
import openai
import psutil

from bench import inside, results
from bench.llm_stand_in import SLOW
from bench.measures import percentiles
from bench.server import RunningLoom, loom
from loom.llm.v1 import llm_pb2 as pb
from loom.llm.v1 import llm_pb2_grpc as pb_grpc
from loom_common.attribution import ATTRIBUTION_KEY, Attribution
from loom_common.auth.service_credentials import SERVICE_AUDIENCE, ServiceKey

STREAMS: Final = 200

_ROUNDS: Final = 20
_BLOCK: Final = 25
_WARM_UP: Final = 50
_KEY: Final = "sk-stand-in"
_MODEL: Final = "gpt-6-luna"
_PROMPT: Final = "What does Maria prefer?"


def run() -> None:
    """Runs the benchmark and saves its figures."""
    # A model of vectors would be calibrated meanwhile, on every core.
    variables = {"OPENAI_API_KEY": _KEY, "LOOM_EMBEDDING_MODEL": "fake-ngram-64", "LOOM_LOG_LEVEL": "warning"}
    with _stand_in() as url, loom(variables={**variables, "LOOM_OPENAI_BASE_URL": url}) as running:
        figures = asyncio.run(_measure(url, running))
    with _stand_in() as url:
        job = {"url": url, "key": _KEY, "llm": _MODEL, "prompt": _PROMPT}
        figures["inside"] = inside.measured("llm", job, {**variables, "LOOM_OPENAI_BASE_URL": url})
    results.save("llm", figures)
    print(json.dumps(figures, indent=1))


@contextmanager
def _stand_in() -> Iterator[str]:
    process = subprocess.Popen([sys.executable, "-m", "bench.llm_stand_in"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
    finally:
        process.kill()
        process.wait()


async def _measure(url: str, running: RunningLoom) -> dict[str, Any]:
    async with openai.AsyncOpenAI(api_key=_KEY, base_url=url, max_retries=0) as sdk, _stub(running) as stub:
        unary = await _in_turn(lambda: _direct(sdk), lambda: _through(stub))
        first = await _in_turn(lambda: _direct_first(sdk), lambda: _through_first(stub))
        hit = await _timed(lambda: _cached(stub))
        streams = await _streams(stub, running.pid)
    return {"unary": unary, "first_token": first, "cache_hit": percentiles(hit), "streams": streams}


@asynccontextmanager
async def _stub(running: RunningLoom) -> AsyncIterator["pb_grpc.LlmServiceAsyncStub"]:
    """Calls as the memory service does, with its own key."""
    token = ServiceKey.load(running.data_dir / "keys" / "memory.jwk").mint(SERVICE_AUDIENCE)
    sent = (("x-loom-service", token), (ATTRIBUTION_KEY, Attribution("bench", "bench", feature="bench").to_bytes()))
    async with grpc.aio.insecure_channel(running.grpc["llm"]) as channel:
        yield _Credentialed(pb_grpc.LlmServiceStub(channel), sent)  # type: ignore[misc]  # it has the calls used here


class _Credentialed:
    """A stub whose every call carries the same metadata."""

    def __init__(self, stub: Any, metadata: tuple[tuple[str, str | bytes], ...]) -> None:
        self._stub = stub
        self._metadata = metadata

    def __getattr__(self, name: str) -> Callable[[Any], Any]:
        method = getattr(self._stub, name)
        return lambda request: method(request, metadata=self._metadata, timeout=60.0)


async def _direct(sdk: openai.AsyncOpenAI) -> float:
    began_s = time.perf_counter()
    answer = await sdk.chat.completions.create(
        model=_MODEL, messages=[{"role": "user", "content": _PROMPT}], max_completion_tokens=64
    )
    assert answer.choices[0].message.content
    return time.perf_counter() - began_s


async def _direct_first(sdk: openai.AsyncOpenAI) -> float:
    began_s = time.perf_counter()
    stream = await sdk.chat.completions.create(
        model=_MODEL,
        messages=[{"role": "user", "content": _PROMPT}],
        max_completion_tokens=64,
        stream=True,
        stream_options={"include_usage": True},
    )
    first_s = 0.0
    async for chunk in stream:
        if not first_s and chunk.choices and chunk.choices[0].delta.content:
            first_s = time.perf_counter() - began_s
    return first_s


async def _through(stub: Any, cache: pb.CacheUse | None = None) -> float:
    began_s = time.perf_counter()
    answer = await stub.Complete(pb.CompleteRequest(user=_PROMPT, max_tokens=64, cache=cache))
    took_s = time.perf_counter() - began_s
    assert answer.text
    return took_s


async def _through_first(stub: Any, user: str = _PROMPT) -> float:
    began_s = time.perf_counter()
    first_s = 0.0
    async for message in stub.StreamComplete(pb.StreamCompleteRequest(user=user, max_tokens=64)):
        if not first_s and message.text:
            first_s = time.perf_counter() - began_s
    return first_s


async def _cached(stub: Any) -> float:
    return await _through(stub, pb.CacheUse(enabled=True))


async def _in_turn(
    direct: Callable[[], Awaitable[float]], through: Callable[[], Awaitable[float]]
) -> dict[str, dict[str, float] | float]:
    """Times both in turn; the overhead is the difference of their medians."""
    for _ in range(_WARM_UP):
        await direct()
        await through()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(_ROUNDS):
        for way, held in zip((direct, through), times, strict=True):
            held += [await way() for _ in range(_BLOCK)]
    overhead_ms = round(1000 * (median(times[1]) - median(times[0])), 2)
    return {"sdk": percentiles(times[0]), "loom": percentiles(times[1]), "overhead_p50_ms": overhead_ms}


async def _timed(way: Callable[[], Awaitable[float]]) -> list[float]:
    for _ in range(_WARM_UP):
        await way()
    return [await way() for _ in range(_ROUNDS * _BLOCK)]


async def _streams(stub: Any, pid: int) -> dict[str, Any]:
    """Opens many slow streams at once, and counts the threads of Loom's process before and while they run."""
    process = psutil.Process(pid)
    before = process.num_threads()
    began_s = time.perf_counter()
    running = [asyncio.create_task(_through_first(stub, SLOW)) for _ in range(STREAMS)]
    await asyncio.sleep(1.0)
    during, open_count = process.num_threads(), sum(not task.done() for task in running)
    firsts = await asyncio.gather(*running)
    return {
        "streams": STREAMS,
        "open_at_once": open_count,
        "threads_before": before,
        "threads_during": during,
        "first_token": percentiles(firsts),
        "seconds": round(time.perf_counter() - began_s, 2),
    }
