"""Measures one peer in its own environment; started by `bench.latency`, prints one line of JSON.

Usage: python peers.py mem0|chroma JOB.json VECTORS.npy
Both get the same texts, the same vectors and a condition on the user, as Loom does. mem0 runs with `infer=False`, so
that no model is called; it has no bulk add without one, so the middle of the texts is loaded through its vector store.
"""

import json
import logging
import os
import sys
import tempfile
import time
import uuid
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

USER = "u1"
TOP_K = 10


class Chroma:
    """chromadb, persistent, with a condition on the user."""

    def __init__(self, folder: str, vectors: dict[str, Any]) -> None:
        import chromadb

        client = chromadb.PersistentClient(folder, settings=chromadb.Settings(anonymized_telemetry=False))
        self._collection = client.create_collection("mem", metadata={"hnsw:space": "cosine"}, embedding_function=None)
        self._vectors = vectors

    def add(self, text: str) -> None:
        """Adds one text."""
        self.load([text])

    def load(self, texts: list[str]) -> None:
        """Adds texts in bulk."""
        for start in range(0, len(texts), 2000):
            part = texts[start : start + 2000]
            self._collection.add(
                ids=[uuid.uuid4().hex for _ in part],
                embeddings=np.stack([self._vectors[text] for text in part]),
                documents=part,
                metadatas=[{"user_id": USER}] * len(part),
            )

    def search(self, query: str) -> None:
        """Finds the ten nearest texts of the user."""
        self._collection.query(
            query_embeddings=[self._vectors[query].tolist()], n_results=TOP_K, where={"user_id": USER}
        )


class Mem0:
    """mem0ai over its default store, local qdrant."""

    def __init__(self, folder: str, vectors: dict[str, Any]) -> None:
        from mem0 import Memory
        from mem0.utils.factory import EmbedderFactory

        self._vectors = vectors
        embedder = _TableEmbedder(vectors)
        EmbedderFactory.create = classmethod(lambda cls, *args, **options: embedder)
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

    def add(self, text: str) -> None:
        """Adds one text without a model."""
        self._memory.add(text, user_id=USER, infer=False)

    def load(self, texts: list[str]) -> None:
        """Loads texts through the vector store, in the form that `add` gives them."""
        for start in range(0, len(texts), 1000):
            part = texts[start : start + 1000]
            self._memory.vector_store.insert(
                vectors=[self._vectors[text].tolist() for text in part],
                payloads=[{"user_id": USER, "data": text, "hash": uuid.uuid4().hex} for text in part],
                ids=[str(uuid.uuid4()) for _ in part],
            )

    def search(self, query: str) -> None:
        """Finds the ten nearest texts of the user."""
        self._memory.search(query, filters={"user_id": USER}, top_k=TOP_K)


class _TableEmbedder:
    """Returns vectors that were made before."""

    class config:  # noqa: N801 - mem0 reads it by this name
        """What mem0 asks of an embedder."""

        embedding_dims = 384

    def __init__(self, vectors: dict[str, Any]) -> None:
        self._vectors = vectors

    def embed(self, text: str, memory_action: object = None) -> list[float]:
        """Returns one vector."""
        found: list[float] = self._vectors[text].tolist()
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
    name, job_path, vectors_path = sys.argv[1:]
    job = json.loads(Path(job_path).read_text("utf-8"))
    texts, queries, timed = job["texts"], job["queries"], job["timed"]
    table = dict(zip([*texts, *queries], np.load(vectors_path), strict=True))
    before = psutil.Process().memory_info().rss
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        peer = {"mem0": Mem0, "chroma": Chroma}[name](folder, table)
        peer.add(texts[0])
        began = time.perf_counter()
        peer.load(texts[1:-timed])
        bulk_s = time.perf_counter() - began
        adds = [_seconds(peer.add, text) for text in texts[-timed:]]
        for query in queries[: job["warm_up"]]:
            peer.search(query)
        searches = [_seconds(peer.search, query) for query in queries[job["warm_up"] :]]
        print(
            json.dumps(
                {
                    "set": percentiles(adds),
                    "search": percentiles(searches),
                    "bulk_per_s": round((len(texts) - timed - 1) / bulk_s, 1),
                    "rss_mb": (psutil.Process().memory_info().rss - before) >> 20,
                }
            )
        )


def _seconds(work: Any, text: str) -> float:
    began = time.perf_counter()
    work(text)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
