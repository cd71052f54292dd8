"""What the gateway adds to a call, next to a direct gRPC call and to Envoy's JSON transcoder before the same service.

All three ways lead to the same running service, with the same token, from a caller in a process of its own. Two calls:
one that needs no statement of the database, and a read by key, whose rate is set against what the engine's own handles
give for the same statement when nothing is around it.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench import envoy, results
from bench.server import WORK, RunningLoom, loom
from loom.embedding.v1 import calibration_pb2
from loom.memory.v1 import memory_pb2
from loom_client import Loom, MemoryInput
from loom_common.call import Scope
from loom_common.clickhouse import ClickHouseSettings, open_clickhouse
from loom_common.process import embedded_url
from loom_memory.domain.memory import Identity
from loom_memory.store.memories import MemoryRepository

CLIENTS: Final = (1, 16, 64)
_SECONDS: Final = 8.0
_BRIEF_SECONDS: Final = 1.0
_MEMORIES: Final = 1000
_KEY: Final = "memory-500"
# Whatever the gateway's places are, here the rate is what is measured.
_VARIABLES: Final = {"LOOM_EMBEDDING_MODEL": "fake-ngram-64", "LOOM_LOG_LEVEL": "warning"}


@dataclass(frozen=True)
class Call:
    """One call, by its three ways."""

    name: str
    service: str
    """Process that answers it."""
    method: str
    request: bytes
    body: str


CALLS: Final = (
    Call(
        "calibration.get",
        "embedding",
        "/loom.embedding.v1.CalibrationService/GetCalibration",
        calibration_pb2.GetCalibrationRequest().SerializeToString(),
        "{}",
    ),
    Call(
        "memory.get",
        "memory",
        "/loom.memory.v1.MemoryService/GetMemory",
        memory_pb2.GetMemoryRequest(key=_KEY).SerializeToString(),
        json.dumps({"key": _KEY}),
    ),
)


def run(*, brief: bool = False) -> dict[str, Any]:
    """Measures and saves; a brief run saves nothing and shows only that all of it works."""
    WORK.mkdir(exist_ok=True)
    seconds = _BRIEF_SECONDS if brief else _SECONDS
    program = envoy.binary()
    with tempfile.TemporaryDirectory(prefix="loom-bench-", ignore_cleanup_errors=True) as folder:
        data_dir = Path(folder)
        with loom(data_dir, variables=_VARIABLES) as server:
            _store(server)
            calls = {call.name: _measure(server, call, program, seconds) for call in CALLS}
        # Each service in a process of its own: what goes without sockets above goes over them here.
        with loom(data_dir, processes=True, variables=_VARIABLES) as server:
            apart = {call.name: _measure(server, call, "measured above", seconds) for call in CALLS}
        handles = {str(count): _engine_reads_per_s(data_dir, count, seconds) for count in CLIENTS}
    best = max(handles.values())
    reads = max(found["per_s"] for found in calls["memory.get"]["gateway"].values())
    figures: dict[str, Any] = {
        "calls": calls,
        "calls_of_processes": apart,
        "envoy": envoy.VERSION if isinstance(program, Path) else f"not measured: {program}",
        "engine_reads_per_s": handles,
        "memory_get_share_of_engine": round(reads / best, 3),
    }
    if not brief:
        results.save("gateway", figures)
    print(json.dumps(figures, indent=1))
    return figures


def _store(server: RunningLoom) -> None:
    with Loom(server.http_url, server.token, timeout_s=60) as client:
        for start in range(0, _MEMORIES, 250):
            keys = [f"memory-{number}" for number in range(start, start + 250)]
            client.memory.set_many([MemoryInput(key=key, value=f"what {key} says") for key in keys])


def _measure(server: RunningLoom, call: Call, program: Path | str, seconds: float) -> dict[str, Any]:
    """Returns percentiles and rates by way and number of clients, and what the gateway adds to the direct call."""
    address = server.grpc[call.service]
    direct = {"kind": "grpc", "address": address, "path": call.method, "request_hex": call.request.hex()}
    gateway = {"kind": "http", "address": server.http_url.removeprefix("http://"), "path": f"/v1/{call.name}"}
    ways: dict[str, dict[str, Any]] = {"direct": direct, "gateway": gateway}
    with _before(program, address, call) as envoy_address:
        if envoy_address is not None:
            ways["envoy"] = {"kind": "http", "address": envoy_address, "path": call.method}
        # Side by side: each number of clients goes every way before the next, so that a slow minute is slow for all.
        found: dict[str, dict[str, Any]] = {way: {} for way in ways}
        for clients in CLIENTS:
            for way, job in ways.items():
                whole = {**job, "body": call.body, "token": server.token, "clients": clients, "seconds": seconds}
                found[way][str(clients)] = _load(whole)
    added = {
        way: {
            clients: {
                name: round(found[way][clients][name] - found["direct"][clients][name], 2)
                for name in ("p50_ms", "p99_ms")
            }
            for clients in found[way]
        }
        for way in found
        if way != "direct"
    }
    return {**found, "added": added}


@contextmanager
def _before(program: Path | str, address: str, call: Call) -> Iterator[str | None]:
    if not isinstance(program, Path):
        print(f"bench: without Envoy: {program}", file=sys.stderr)
        yield None
        return
    with envoy.transcoding(program, address, [call.method[1:].partition("/")[0]]) as found:
        yield found


def _load(job: dict[str, Any]) -> dict[str, float]:
    path = WORK / "gateway_load.json"
    path.write_text(json.dumps(job), "utf-8")
    command = [sys.executable, "-m", "bench.gateway_load", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120 + job["seconds"])
    path.unlink()  # it holds the token
    if done.returncode:
        sys.exit(f"bench: {done.stderr.strip()[-1000:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _engine_reads_per_s(data_dir: Path, readers: int, seconds: float) -> float:
    """Returns how many of the read's statements the engine answers, with the handles and settings that Loom gives it.

    In a process of its own: an engine is opened once in a process, and the one that served has its files warm.
    """
    command = [sys.executable, "-m", "bench.gateway", str(data_dir), str(readers), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120 + seconds)
    if done.returncode:
        sys.exit(f"bench: {done.stderr.strip()[-1000:]}")
    return float(done.stdout.strip().splitlines()[-1])


async def _read_engine(data_dir: Path, readers: int, seconds: float) -> float:
    settings = ClickHouseSettings.load()
    scope, identity = Scope("default", "default"), Identity(_KEY)
    async with open_clickhouse(embedded_url(data_dir), database=settings.database, settings=settings) as ch:
        memories = MemoryRepository(ch)

        async def read(until: float) -> int:
            count = 0
            while time.perf_counter() < until:
                found = await memories.current(scope, [identity])
                assert identity in found, "stored before"
                count += 1
            return count

        await read(time.perf_counter() + 0.5)
        began = time.perf_counter()
        counts = await asyncio.gather(*(read(began + seconds) for _ in range(readers)))
        return round(sum(counts) / (time.perf_counter() - began), 1)


if __name__ == "__main__":
    print(asyncio.run(_read_engine(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))))
