"""Latency: how long do set and search take at 1,000, 10,000 and 100,000 memories, through the gateway?

Loom is called over HTTP by its Python client, so that its figures hold everything: HTTP, authentication, gRPC, the
embedding and the durable write. The peers are libraries called in their own process, with vectors made before and by
the same model; the embedding that Loom's figures hold is reported apart.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.progress import track

from bench import results
from bench.datasets import locomo
from bench.measures import percentiles
from bench.references import Embedder, Scores
from bench.server import WORK, RunningLoom, loom
from loom_client import Loom, LoomError, MemoryInput

PEERS: Final = ("chroma", "mem0")

_TIMED: Final = 200
_WARM_UP: Final = 20
_BATCH: Final = 100
_CLIENTS: Final = (1, 4, 16)
_THROUGHPUT_S: Final = 5.0
_USER: Final = "u1"


def run(data: Path, sizes: Sequence[int], *, with_peers: bool, kept: Path | None = None) -> None:
    """Runs the benchmark at each size and saves its figures as they come.

    Args:
        data: LoCoMo's folder.
        sizes: Numbers of memories.
        with_peers: Whether mem0 and chroma are measured too.
        kept: Folder in which the loaded memories stay, so that a later run only measures; what a run writes stays too.
    """
    figures: dict[str, Any] = results.load("latency") or {}
    rows: dict[str, Any] = figures.get("sizes", {})
    for size in sizes:
        texts, queries = _corpus(data, size)
        folder = kept / str(size) if kept else None
        # Where only Loom is measured again, the peers' last figures stay beside its own.
        measured: dict[str, Any] = rows.get(str(size), {}) | {"loom": _measure_loom(texts, queries, folder)}
        _save(rows, size, measured)
        if with_peers:
            vectors = _vectors(texts + queries[: _WARM_UP + _TIMED], folder / "vectors.npy" if folder else None)
            for peer in PEERS:
                measured[peer] = _measure_peer(peer, texts, queries, vectors)
                _save(rows, size, measured)


def _save(rows: dict[str, Any], size: int, measured: dict[str, Any]) -> None:
    rows[str(size)] = measured
    results.save("latency", {"sizes": rows})
    print(size, json.dumps(measured), flush=True)


def _corpus(data: Path, size: int) -> tuple[list[str], list[str]]:
    """Returns `size` distinct texts, turns of LoCoMo with a running number where they repeat, and its questions."""
    conversations = locomo(data)
    turns = [f"{turn.speaker}: {turn.text}" for talk in conversations for turn in talk.turns if turn.text]
    rounds = range(size + _TIMED)
    texts = [turns[i % len(turns)] + (f" (note {i})" if i >= len(turns) else "") for i in rounds]
    questions = [question.text for talk in conversations for question in talk.questions]
    # Every seventh, so that all conversations are asked about.
    return texts, questions[:: max(1, len(questions) // (_TIMED + _WARM_UP))]


def _measure_loom(texts: list[str], queries: list[str], kept: Path | None) -> dict[str, Any]:
    with loom(kept) as server, Loom(server.http_url, server.token, timeout_s=120) as client:
        bulk_per_s = _load(client, texts[:-_TIMED], server.data_dir / "bulk.json")
        # A directory that was kept holds the timed texts of earlier runs, and what is stored already is not written.
        new = [f"{text} (run {time.time_ns() // 1_000_000:x})" for text in texts[-_TIMED:]]
        sets = _timed(lambda text: client.memory.set(text, user_id=_USER), new)
        for query in queries[:_WARM_UP]:
            client.memory.search(query, user_id=_USER)
        asked = queries[_WARM_UP : _WARM_UP + _TIMED]
        searches = _timed(lambda query: client.memory.search(query, user_id=_USER), asked)
        found = {
            "set": percentiles(sets),
            "search": percentiles(searches),
            "bulk_per_s": bulk_per_s,
            "throughput_per_s": _throughput(server, queries),
            "rss_mb": server.rss_bytes() >> 20,
            "disk_mb": server.disk_bytes() >> 20,
        }
        return found | _embedding_alone(server, texts[-_TIMED:], asked)


def _load(client: Loom, texts: list[str], note: Path) -> float | None:
    """Stores texts in batches where `note` does not say that they are.

    Returns:
        How many a second it took; None where `note` says that it was not measured, because other work ran beside.
    """
    if note.exists():
        found: float | None = json.loads(note.read_text("utf-8"))["bulk_per_s"]
        return found
    began = time.perf_counter()
    for start in track(range(0, len(texts), _BATCH), "storing", transient=True):
        client.memory.set_many([MemoryInput(value=text, user_id=_USER) for text in texts[start : start + _BATCH]])
    per_s = round(len(texts) / (time.perf_counter() - began), 1)
    note.write_text(json.dumps({"bulk_per_s": per_s}), "utf-8")
    return per_s


def _embedding_alone(server: RunningLoom, texts: list[str], queries: list[str]) -> dict[str, Any]:
    embed = Embedder(str(server.model_folder()))
    embed(texts[:_WARM_UP])
    return {
        "embed_text": percentiles(_timed(lambda text: embed([text]), texts)),
        "embed_query": percentiles(_timed(lambda query: embed([query]), queries)),
    }


def _throughput(server: RunningLoom, queries: list[str]) -> dict[str, dict[str, float]]:
    """Returns calls per second that 1, 4 and 16 clients get done, each a thread with a connection of its own."""
    found: dict[str, dict[str, float]] = {"set": {}, "search": {}}
    for clients in _CLIENTS:
        found["search"][str(clients)] = _rate(
            server, clients, lambda client, i: client.memory.search(queries[i % len(queries)], user_id=_USER)
        )
        found["set"][str(clients)] = _rate(
            server, clients, lambda client, i: client.memory.set(f"throughput note {time.time_ns()} {i}", user_id="u2")
        )
    return found


def _rate(server: RunningLoom, clients: int, work: Callable[[Loom, int], object]) -> float:
    counts = [0] * clients
    failures: list[str] = []
    until = time.perf_counter() + _THROUGHPUT_S

    def one(number: int) -> None:
        with Loom(server.http_url, server.token, timeout_s=60) as client:
            try:
                while time.perf_counter() < until:
                    work(client, number * 1_000_003 + counts[number])
                    counts[number] += 1
            except LoomError as error:
                failures.append(str(error))

    began = time.perf_counter()
    threads = [threading.Thread(target=one, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        sys.exit(f"bench: {failures[0]}")
    return round(sum(counts) / (time.perf_counter() - began), 1)


def _timed(work: Callable[[str], object], items: Sequence[str]) -> list[float]:
    seconds = []
    for item in items:
        began = time.perf_counter()
        work(item)
        seconds.append(time.perf_counter() - began)
    return seconds


def _measure_peer(peer: str, texts: list[str], queries: list[str], vectors: Scores) -> dict[str, Any]:
    """Measures a peer in a process and an environment of its own; `make bench` does not need it to succeed."""
    python = _peer_environment()
    job = WORK / f"{peer}.json"
    asked = queries[: _WARM_UP + _TIMED]
    np.save(WORK / "vectors.npy", vectors)
    job.write_text(json.dumps({"texts": texts, "queries": asked, "timed": _TIMED, "warm_up": _WARM_UP}), "utf-8")
    script = Path(__file__).parent / "peers.py"
    command = [str(python), str(script), peer, str(job), str(WORK / "vectors.npy")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3600)
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1:] or ["failed"]}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def _vectors(texts: list[str], kept: Path | None) -> Scores:
    """Returns the texts' vectors, made by the model that Loom just used, or those that an earlier run kept."""
    if kept is not None and kept.exists():
        found: Scores = np.load(kept)
        return found
    made = Embedder(str(WORK / "model"))(texts)
    if kept is not None:
        np.save(kept, made)
    return made


def _peer_environment() -> Path:
    """Returns the Python of the peers' environment, made where absent: their packages do not fit beside Loom's."""
    folder = WORK / "peers"
    python = folder / "bin" / "python"
    if not (folder / ".done").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        lock = Path(__file__).parent.parent / "requirements" / "bench-peers.txt"
        subprocess.run([str(python), "-m", "pip", "install", "-q", "--require-hashes", "-r", str(lock)], check=True)
        (folder / ".done").touch()
    return python
