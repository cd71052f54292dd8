"""Many searchers beside a writer, and a long run at a fixed rate: is anything lost, and does anything grow?"""

import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import psutil

from bench.measures import percentiles
from bench.server import RunningLoom
from loom_client import Loom, LoomError

_SEARCHERS: Final = 20
_SOAK_SEARCHES_PER_S: Final = 10.0
_SOAK_SETS_PER_S: Final = 2.0
_SAMPLE_S: Final = 5.0
# Caches, pools and the engine's own threads fill first.
_WARM_UP_SHARE: Final = 0.25


def concurrency(
    server: RunningLoom, token: str, namespace: str, questions: Sequence[str], *, seconds: float
) -> dict[str, Any]:
    """Measures searchers alone and then beside one writer, whose every memory has to be found right after its write."""
    quiet = _searching(server, token, namespace, questions, seconds, None)
    written: list[str] = []
    lost: list[str] = []

    def write(client: Loom, number: int) -> None:
        word = f"zq{time.time_ns():x}"
        client.memory.set(f"the word of this hour is {word}", namespace=namespace, key=f"load-{word}")
        written.append(word)
        found = client.memory.search(word, namespace=namespace, search_mode="lexical", top_k=3)
        if not any(hit.memory and word in hit.memory.value for hit in found.hits):
            lost.append(word)

    beside = _searching(server, token, namespace, questions, seconds, write)
    with Loom(server.http_url, token, timeout_s=60) as client:
        lost += [word for word in written if not client.memory.get(f"load-{word}", namespace=namespace).found]
    return {
        "searchers": _SEARCHERS,
        "quiet": percentiles(quiet),
        "beside_a_writer": percentiles(beside),
        "p95_ratio": round(percentiles(beside)["p95_ms"] / percentiles(quiet)["p95_ms"], 2),
        "searches_per_s": round(len(beside) / seconds, 1),
        "written": len(written),
        "lost": len(lost),
    }


def soak(server: RunningLoom, questions: Sequence[str], minutes: float) -> dict[str, Any]:
    """Searches and writes at a fixed rate, and samples memory and threads of the process."""
    until = time.perf_counter() + minutes * 60
    samples: list[tuple[float, int, int]] = []
    with Loom(server.http_url, server.token, timeout_s=60) as client:
        for number in range(200):
            client.memory.set(f"note {number}: {questions[number % len(questions)]}")
    threads = [
        threading.Thread(target=_at_rate, args=(server, _SOAK_SEARCHES_PER_S, until, _soak_search(questions))),
        threading.Thread(target=_at_rate, args=(server, _SOAK_SETS_PER_S, until, _soak_set)),
    ]
    for thread in threads:
        thread.start()
    process = psutil.Process(server.pid)
    began = time.perf_counter()
    while time.perf_counter() < until:
        samples.append((time.perf_counter() - began, server.rss_bytes() >> 20, process.num_threads()))
        time.sleep(min(_SAMPLE_S, max(0.1, until - time.perf_counter())))
    for thread in threads:
        thread.join()
    warm = [sample for sample in samples if sample[0] >= minutes * 60 * _WARM_UP_SHARE] or samples
    hours = max(warm[-1][0] - warm[0][0], 1.0) / 3600
    return {
        "minutes": minutes,
        "searches_per_s": _SOAK_SEARCHES_PER_S,
        "sets_per_s": _SOAK_SETS_PER_S,
        "rss_mb": {"after_warm_up": warm[0][1], "most": max(each[1] for each in warm), "end": warm[-1][1]},
        "rss_mb_per_hour": round((warm[-1][1] - warm[0][1]) / hours, 1),
        "threads": {"after_warm_up": warm[0][2], "most": max(each[2] for each in warm), "end": warm[-1][2]},
    }


def _searching(
    server: RunningLoom,
    token: str,
    namespace: str,
    questions: Sequence[str],
    seconds: float,
    write: Callable[[Loom, int], None] | None,
) -> list[float]:
    taken: list[float] = []
    failures: list[str] = []
    until = time.perf_counter() + seconds

    def loop(work: Callable[[Loom, int], None]) -> None:
        number = 0
        with Loom(server.http_url, token, timeout_s=60) as client:
            try:
                while time.perf_counter() < until:
                    work(client, number)
                    number += 1
            except LoomError as error:
                failures.append(str(error))

    def searcher(first: int) -> Callable[[Loom, int], None]:
        def search(client: Loom, number: int) -> None:
            began = time.perf_counter()
            client.memory.search(questions[(first * 17 + number) % len(questions)], namespace=namespace, top_k=10)
            taken.append(time.perf_counter() - began)

        return search

    work = [searcher(number) for number in range(_SEARCHERS)] + ([write] if write else [])
    threads = [threading.Thread(target=loop, args=(each,)) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        sys.exit(f"bench: {failures[0]}")
    return taken


def _at_rate(server: RunningLoom, per_s: float, until: float, work: Callable[[Loom, int], None]) -> None:
    number, due = 0, time.perf_counter()
    with Loom(server.http_url, server.token, timeout_s=60) as client:
        while (now := time.perf_counter()) < until:
            if now < due:
                time.sleep(due - now)
            work(client, number)
            number += 1
            due = max(due + 1 / per_s, time.perf_counter() - 1)


def _soak_search(questions: Sequence[str]) -> Callable[[Loom, int], None]:
    def search(client: Loom, number: int) -> None:
        client.memory.search(questions[number % len(questions)])

    return search


def _soak_set(client: Loom, number: int) -> None:
    # The same hundred keys again and again: what is kept must not grow with what was written.
    client.memory.set(f"state {time.time_ns():x}", key=f"soak-{number % 100}")
