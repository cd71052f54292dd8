"""loom_search and context.pack over one namespace of every plane, beside the searches of single planes.

A namespace holds memories, documents and turns of conversations. Over HTTP by the Python client's transport, each call
with a question that nothing has seen, so that each embeds once. The single searches are what the legs of a search over
all planes run side by side; the whole is held against the slowest of them.
"""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import httpx2

from bench import results
from bench.measures import percentiles
from bench.memory import Corpus, corpus_of, embedding_times, load_memories, seconds_of, token_for
from bench.memory_load import namespace_of
from bench.server import WORK, RunningLoom, loom

SIZES: Final = (10_000, 100_000)
_DOCUMENTS: Final = 1_000
_TURNS: Final = 5_000
_TIMED: Final = 50
_TOP_K: Final = 10
_DOCUMENTS_PER_CALL: Final = 25
_TURNS_PER_CALL: Final = 50
# What a pack is asked for: the recall of a prompt, and everything that there is.
_PACKS: Final[Mapping[str, Mapping[str, Any]]] = {
    "pack": {},
    "pack_everything": {"include_knowledge": True, "include_conversations": True, "include_runs": True},
}
_LEGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "memory.search": {"top_k": _TOP_K},
    "knowledge.search": {"top_k": _TOP_K},
    "conversation.search": {"top_k": _TOP_K},
}
_HELD_WITHIN_S: Final = 180.0


def run(data: Path, sizes: Sequence[int] = SIZES, *, brief: bool = False, kept: Path | None = None) -> None:
    """Runs the benchmark and saves its figures; a brief one only prints them."""
    corpus = corpus_of(data, brief=brief)
    figures: dict[str, Any] = {"documents": _DOCUMENTS, "turns": _TURNS, "sizes": {}}
    documents, turns = (20, 60) if brief else (_DOCUMENTS, _TURNS)
    for size in sizes:
        measured = _measured(corpus, size, documents, turns, kept, timed=8 if brief else _TIMED)
        figures["sizes"][str(size)] = measured
        print(size, json.dumps(measured), flush=True)
        if not brief:
            results.save("context", figures)


def _measured(
    corpus: Corpus, size: int, documents: int, turns: int, kept: Path | None, *, timed: int
) -> dict[str, Any]:
    with ExitStack() as stack:
        folder = kept / f"context-{size}" if kept else None
        is_filled = folder is not None and (folder / "filled").exists()
        if not is_filled:
            folder = folder or _fresh(size)
            folder.mkdir(parents=True, exist_ok=True)
            load_memories(corpus, size, 1, folder)
        server = stack.enter_context(loom(folder))
        calls = stack.enter_context(_Calls(server, token_for(server, size, 1)))
        if not is_filled and folder is not None:
            _fill(calls, corpus, documents, turns)
            (folder / "filled").touch()
        return _timed(server, calls, corpus, timed)


def _fresh(size: int) -> Path:
    folder = WORK / f"context-{size}-{time.time_ns():x}"
    folder.mkdir(parents=True)
    return folder


class _Calls:
    """Calls operations of one Loom, over one connection."""

    def __init__(self, server: RunningLoom, token: str) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        self._client = httpx2.Client(base_url=server.http_url, headers=headers, timeout=300)

    def __enter__(self) -> "_Calls":
        return self

    def __exit__(self, *_error: object) -> None:
        self._client.close()

    def __call__(self, op: str, **body: Any) -> dict[str, Any]:
        answer = self._client.post(f"/v1/{op}", json={"namespace": namespace_of(0, 1), **body})
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found


def _fill(call: _Calls, corpus: Corpus, documents: int, turns: int) -> None:
    """Stores documents of four passages and conversations of fifty turns, made of the corpus' texts."""
    texts = corpus.texts
    for first in range(0, documents, _DOCUMENTS_PER_CALL):
        call(
            "knowledge.ingest",
            documents=[
                {"source_uri": f"bench/{number}.md", "text": _document(texts, number)}
                for number in range(first, min(first + _DOCUMENTS_PER_CALL, documents))
            ],
        )
    for first in range(0, turns, _TURNS_PER_CALL):
        call(
            "conversation.append",
            conversation_id=f"bench-{first}",
            turns=[
                {"turn_id": f"t{number}", "role": "user", "text": texts[number % len(texts)]}
                for number in range(first, min(first + _TURNS_PER_CALL, turns))
            ],
        )
    call("memory.set", key="bench-pin", value="Answers are short.", pinned=True)


def _document(texts: Sequence[str], number: int) -> str:
    parts = [f"## Part {part}\n\n{texts[(number * 4 + part) % len(texts)]}" for part in range(4)]
    return f"# Document {number}\n\n" + "\n\n".join(parts)


def _timed(server: RunningLoom, call: _Calls, corpus: Corpus, timed: int) -> dict[str, Any]:
    questions = iter(corpus.questions)
    _warm(server, call, corpus)
    calls: dict[str, list[float]] = {}
    # In turn, so that whatever else the machine does falls on all of them alike.
    for _ in range(timed):
        for op, body in _LEGS.items():
            calls.setdefault(op, []).append(_call(call, op, next(questions), **body))
        calls.setdefault("search.query", []).append(_call(call, "search.query", next(questions), top_k=_TOP_K))
        for name, body in _PACKS.items():
            calls.setdefault(name, []).append(_call(call, "context.pack", next(questions), **body))
    embed = percentiles(asyncio.run(embedding_times(server, [next(questions) for _ in range(min(timed, 50))])))
    found = {name: percentiles(seconds) for name, seconds in calls.items()}
    slowest = max(found[op]["p50_ms"] for op in _LEGS)
    return found | {
        "embed_query": embed,
        "search_by_slowest_leg": round(found["search.query"]["p50_ms"] / slowest, 2),
        "pack_above_embedding_p50_ms": round(found["pack"]["p50_ms"] - embed["p50_ms"], 2),
        "pack_everything_above_embedding_p50_ms": round(found["pack_everything"]["p50_ms"] - embed["p50_ms"], 2),
        "rss_mb": server.rss_bytes() >> 20,
    }


def _call(call: _Calls, op: str, question: str, **body: Any) -> float:
    return seconds_of(lambda: call(op, query=question, **body))


def _warm(server: RunningLoom, call: _Calls, corpus: Corpus) -> None:
    """Asks everything twice, and waits until the namespace is held as one in use is."""
    for text in corpus.texts[:2]:
        for op in (*_LEGS, "search.query", "context.pack"):
            call(op, query=text)
    until = time.perf_counter() + _HELD_WITHIN_S
    log = server.data_dir / "loom.log"
    while time.perf_counter() < until:
        told = log.read_text("utf-8", errors="replace")
        if '"event": "namespace_loaded"' in told or '"event": "namespace_too_large"' in told:
            return
        time.sleep(0.2)
