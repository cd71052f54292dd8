"""Fills a data directory with memories whose vectors are given, through the store's own inserts.

Usage: python -m bench.memory_load JOB.json, with no Loom on the directory; prints how many a second it stored. A Loom
that starts on it afterwards finds them as if they had been written one by one.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.corpus_vectors import tenant_of, vectors_of
from loom_common.call import Scope
from loom_common.clickhouse import ClickHouseSettings, open_clickhouse
from loom_common.migrations import migrate
from loom_common.process import embedded_url
from loom_memory.domain.analyzer import analyze_text
from loom_memory.domain.memory import Content, Identity, Memory
from loom_memory.store.embeddings import EmbeddedChunk, EmbeddingRepository
from loom_memory.store.memories import MemoryRepository
from loom_memory.store.versions import VersionRepository

_BATCH: Final = 2_000
_ORG: Final = "default"
_START: Final = datetime(2026, 1, 1, tzinfo=UTC)


async def load(job: dict[str, Any], texts: Sequence[str]) -> float:
    """Stores the job's memories and returns how many a second that was."""
    base = np.load(job["base"])
    url = embedded_url(Path(job["data_dir"]))
    store = ClickHouseSettings()
    async with open_clickhouse(url, database=store.database, settings=store) as ch:
        await migrate(ch, "memory", "loom_memory")
        memories, versions, embeddings = MemoryRepository(ch), VersionRepository(ch), EmbeddingRepository(ch)
        began = time.perf_counter()
        for first in range(0, job["size"], _BATCH):
            count = min(_BATCH, job["size"] - first)
            vectors = vectors_of(base, first, count)
            rows = list(_memories(texts, first, count, job["tenants"]))
            await embeddings.insert(job["model"], [_chunk(row, vectors[n]) for n, row in enumerate(rows)])
            await versions.insert(rows)
            await memories.insert([(row, analyze_text(row.content.value)) for row in rows])
        return int(job["size"]) / (time.perf_counter() - began)


def namespace_of(number: int, tenants: int) -> str:
    """Returns the namespace of a memory."""
    return f"bench-{tenants}-{tenant_of(number, tenants)}"


def text_of(texts: Sequence[str], number: int) -> str:
    """Returns the text of a memory: a turn, with a running number where turns repeat."""
    turn = texts[number % len(texts)]
    return turn if number < len(texts) else f"{turn} (note {number})"


def _memories(texts: Sequence[str], first: int, count: int, tenants: int) -> Iterator[Memory]:
    base = time.time_ns()
    for number in range(first, first + count):
        at = _START + timedelta(seconds=number)
        yield Memory(
            scope=Scope(_ORG, namespace_of(number, tenants)),
            identity=Identity(f"m-{number:08}"),
            content=Content(text_of(texts, number)),
            actor="process:bench",
            revision=1,
            version=base + number,
            created_at=at,
            updated_at=at,
        )


def _chunk(memory: Memory, vector: Any) -> EmbeddedChunk:
    return EmbeddedChunk(
        memory.scope, memory.identity, memory.version, 0, 0, len(memory.content.value), vector.tolist()
    )


def main() -> None:
    """Loads what the job says."""
    job = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    texts = json.loads(Path(job["texts"]).read_text("utf-8"))
    print(json.dumps({"per_s": round(asyncio.run(load(job, texts)), 1)}))


if __name__ == "__main__":
    main()
