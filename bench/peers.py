"""Measures one peer in its own environment; started by `bench.memory`, prints one line of JSON.

Usage: python peers.py mem0|chroma JOB.json
Both get the same texts, the same vectors and a condition on the user, who stands for Loom's namespace. mem0 runs with
`infer=False`, so that no model is called; it has no bulk add without one, so all but the timed texts are loaded through
its vector store.
"""

import json
import logging
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ |= {
    "MEM0_TELEMETRY": "False",
    "ANONYMIZED_TELEMETRY": "False",
    "HF_HUB_OFFLINE": "1",
    "OPENAI_API_KEY": "none",
    "MEM0_DIR": tempfile.mkdtemp(prefix="mem0-"),
}

import numpy as np
import psutil
from corpus_vectors import tenant_of, vectors_of  # beside this file: the environment has no Loom

TOP_K = 10
_BATCH = 2_000


class Rows:
    """What a peer stores: texts, their vectors in the batches in which Loom has them, and whose each is."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.texts: list[str] = job["texts"]
        self.base = np.load(job["base"])
        self.tenants: int = job["tenants"]

    def user(self, number: int) -> str:
        """Returns who owns a row."""
        return f"u{tenant_of(number, self.tenants)}"

    def vectors(self, first: int, count: int) -> Any:
        """Returns vectors of rows of one batch."""
        start = first // _BATCH * _BATCH
        return vectors_of(self.base, start, _BATCH)[first - start : first - start + count]


class Chroma:
    """chromadb, persistent, with a condition on the user."""

    def __init__(self, folder: str, rows: Rows) -> None:
        import chromadb

        client = chromadb.PersistentClient(folder, settings=chromadb.Settings(anonymized_telemetry=False))
        self._collection = client.create_collection("mem", metadata={"hnsw:space": "cosine"}, embedding_function=None)
        self._rows = rows

    def add(self, first: int, count: int = 1) -> None:
        """Adds rows."""
        numbers = range(first, first + count)
        self._collection.add(
            ids=[uuid.uuid4().hex for _ in numbers],
            embeddings=self._rows.vectors(first, count),
            documents=[self._rows.texts[number] for number in numbers],
            metadatas=[{"user_id": self._rows.user(number)} for number in numbers],
        )

    def load(self, count: int) -> None:
        """Adds the first rows in bulk."""
        for first in range(0, count, _BATCH):
            self.add(first, min(_BATCH, count - first))

    def search(self, number: int, vector: Any) -> None:
        """Finds the ten nearest texts of a user."""
        where = {"user_id": self._rows.user(number)}
        self._collection.query(query_embeddings=[vector.tolist()], n_results=TOP_K, where=where)


class Mem0:
    """mem0ai over its default store, local qdrant."""

    def __init__(self, folder: str, rows: Rows) -> None:
        from mem0 import Memory
        from mem0.utils.factory import EmbedderFactory

        self._rows = rows
        self._embedder = _GivenEmbedder()
        EmbedderFactory.create = classmethod(lambda cls, *args, **options: self._embedder)
        store = {"collection_name": "mem", "path": f"{folder}/q", "on_disk": True, "embedding_model_dims": 384}
        self._memory = Memory.from_config(
            {
                "vector_store": {"provider": "qdrant", "config": store},
                "history_db_path": f"{folder}/h.db",
                "llm": {"provider": "openai", "config": {"api_key": "none"}},
            }
        )
        # Its sparse leg needs files from a hub; a plain install runs without.
        self._memory.vector_store._bm25_encoder = False

    def add(self, first: int) -> None:
        """Adds one row without a model."""
        self._embedder.vector = self._rows.vectors(first, 1)[0]
        self._memory.add(self._rows.texts[first], user_id=self._rows.user(first), infer=False)

    def load(self, count: int) -> None:
        """Loads rows through the vector store, in the form that `add` gives them."""
        for first in range(0, count, _BATCH // 2):
            numbers = range(first, min(first + _BATCH // 2, count))
            self._memory.vector_store.insert(
                vectors=self._rows.vectors(first, len(numbers)).tolist(),
                payloads=[
                    {"user_id": self._rows.user(number), "data": self._rows.texts[number], "hash": uuid.uuid4().hex}
                    for number in numbers
                ],
                ids=[str(uuid.uuid4()) for _ in numbers],
            )

    def search(self, number: int, vector: Any) -> None:
        """Finds the ten nearest texts of a user."""
        self._embedder.vector = vector
        self._memory.search("given", filters={"user_id": self._rows.user(number)}, top_k=TOP_K)


class _GivenEmbedder:
    """Returns the vector that was made before."""

    class config:  # noqa: N801 - mem0 reads it by this name
        """What mem0 asks of an embedder."""

        embedding_dims = 384

    vector: Any = None

    def embed(self, text: str, memory_action: object = None) -> list[float]:
        """Returns one vector."""
        found: list[float] = self.vector.tolist()
        return found

    def embed_batch(self, texts: list[str], memory_action: object = None) -> list[list[float]]:
        """Returns one vector per text."""
        return [self.embed(text) for text in texts]


def percentiles(seconds: list[float]) -> dict[str, float]:
    """Returns p50, p95 and p99 in milliseconds."""
    return {f"p{share}_ms": round(float(np.percentile(seconds, share)) * 1000, 2) for share in (50, 95, 99)}


def main() -> None:
    """Measures and prints."""
    logging.disable(logging.CRITICAL)
    name, job_path = sys.argv[1:]
    job = json.loads(Path(job_path).read_text("utf-8"))
    rows, asked, timed = Rows(job), np.load(job["asked"]), job["timed"]
    size = len(rows.texts) - timed
    before = psutil.Process().memory_info().rss
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        peer = {"mem0": Mem0, "chroma": Chroma}[name](folder, rows)
        began = time.perf_counter()
        peer.load(size)
        bulk_s = time.perf_counter() - began
        adds = [_seconds(lambda n=n: peer.add(size + n)) for n in range(timed)]
        warm_up = len(asked) - timed
        for number in range(warm_up):
            peer.search(number, asked[number])
        searches = [_seconds(lambda n=n: peer.search(n, asked[n])) for n in range(warm_up, len(asked))]
        print(
            json.dumps(
                {
                    "set": percentiles(adds),
                    "search": percentiles(searches),
                    "bulk_per_s": round(size / bulk_s, 1),
                    "rss_mb": (psutil.Process().memory_info().rss - before) >> 20,
                }
            )
        )


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
