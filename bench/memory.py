"""Set and search through the gateway at several sizes, over many namespaces and in one, beside what else does it.

Loom is called over HTTP by its Python client, so that its figures hold everything: HTTP, authentication, gRPC, the
embedding and the durable write. The query's embedding is measured apart, by the call that a search makes for it. The
peers are libraries in a process of their own, with the same vectors and a condition on the tenant; `exact numpy` is the
plain product of a tenant's vectors with the query, which is the least that any of them can take.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench import results
from bench.corpus_vectors import Vectors, tenant_of, vectors_of
from bench.datasets import locomo
from bench.measures import percentiles
from bench.memory_load import namespace_of, text_of
from bench.memory_under_load import concurrency, soak
from bench.references import Embedder
from bench.server import WORK, RunningLoom, loom
from loom.embedding.v1 import embedding_pb2 as embedding_pb
from loom.embedding.v1 import embedding_pb2_grpc
from loom.identity.v1 import identity_pb2 as identity_pb
from loom.identity.v1 import identity_pb2_grpc
from loom_client import Loom
from loom_common.auth.service_credentials import OPERATOR, ServiceKey
from loom_common.call import Call, bind
from loom_common.channel import open_channel
from loom_memory.domain.query_cues import TOPIC_SHARE, read_cues, topic_of
from loom_memory.domain.vectors import leaning

SHAPES: Final = {"100 namespaces": 100, "one namespace": 1}
PEERS: Final = ("chroma", "mem0")
_MODEL: Final = "local:minilm"
_TOP_K: Final = 10
_TIMED: Final = 200
_SETS: Final = 100
_LOADED_WITHIN_S: Final = 180.0
# Past this size a peer that walks every row in Python takes hours to be filled.
_PEERS_UP_TO: Final = 100_000
_PEER_TIMED: Final = 60


@dataclass(frozen=True)
class Corpus:
    """What is stored and asked: texts, the vectors of the first of them, questions and theirs."""

    texts: list[str]
    base: Vectors
    questions: list[str]
    asked: Vectors
    searched: Vectors


@dataclass(frozen=True)
class Plan:
    """What a run measures."""

    sizes: Sequence[int]
    with_peers: bool = True
    brief: bool = False
    soak_minutes: float = 0.0
    tier_mb: int | None = None
    kept: Path | None = None


def run(data: Path, plan: Plan) -> None:
    """Runs the benchmark and saves its figures as they come; a brief one only prints them."""
    corpus = corpus_of(data, brief=plan.brief)
    figures: dict[str, Any] = {} if plan.brief else results.load("memory") or {}
    rows: dict[str, Any] = figures.setdefault("sizes", {})
    for size in plan.sizes:
        for shape, tenants in SHAPES.items():
            measured = _measured(corpus, size, min(tenants, 5) if plan.brief else tenants, plan)
            rows.setdefault(str(size), {})[shape] = measured
            print(size, shape, json.dumps(measured), flush=True)
            if not plan.brief:
                results.save("memory", figures)
    if plan.soak_minutes:
        with loom() as server:
            figures["soak"] = soak(server, corpus.questions, plan.soak_minutes)
        print("soak", json.dumps(figures["soak"]), flush=True)
        if not plan.brief:
            results.save("memory", figures)


def corpus_of(data: Path, *, brief: bool) -> Corpus:
    """Returns the texts and questions of LoCoMo with their vectors, made once and kept."""
    conversations = locomo(data)
    texts = [f"{turn.speaker}: {turn.text}" for talk in conversations for turn in talk.turns if turn.text]
    if brief:
        texts = texts[:600]
    questions = [question.text for talk in conversations for question in talk.questions]
    # Spread, so that all conversations are asked about; each is asked once, so that no embedding is kept from before.
    questions = list(dict.fromkeys(questions))[:: max(1, len(questions) // 400)][:400]
    kept = WORK / f"memory-vectors-{len(texts)}.npz"
    if kept.exists():
        found = np.load(kept)
        return Corpus(texts, found["base"], questions, found["asked"], found["searched"])
    with loom() as server:  # lays the model's files out
        embed = Embedder(str(server.model_folder()))
    base, asked = embed(texts), embed(questions)
    searched = _searched(questions, embed)
    np.savez(kept, base=base, asked=asked, searched=searched)
    return Corpus(texts, base, questions, asked, searched)


def _searched(questions: Sequence[str], embed: Embedder) -> Vectors:
    """Returns the vectors that Loom searches by: between a question and what it asks of whom it names."""
    texts = [read_cues(question).text for question in questions]
    topics = [topic_of(text) for text in texts]
    pairs = zip(embed(texts).tolist(), embed(topics).tolist(), topics, strict=True)
    return np.array([leaning(one, other, TOPIC_SHARE) if topic else one for one, other, topic in pairs], np.float32)


def _measured(corpus: Corpus, size: int, tenants: int, plan: Plan) -> dict[str, Any]:
    with ExitStack() as stack:
        folder = plan.kept / f"{size}-{tenants}" if plan.kept else None
        bulk_per_s = None
        if folder is None or not (folder / "loaded").exists():
            folder = folder or Path(stack.enter_context(_temporary()))
            folder.mkdir(parents=True, exist_ok=True)
            bulk_per_s = load_memories(corpus, size, tenants, folder)
            (folder / "loaded").touch()
        variables = {"LOOM_MEMORY_TIER_MAX_MB": str(plan.tier_mb)} if plan.tier_mb is not None else {}
        server = stack.enter_context(loom(folder, variables=variables))
        token = token_for(server, size, tenants)
        found = {"loom": _loom(server, token, corpus, size, tenants) | {"store_insert_per_s": bulk_per_s}}
        if plan.brief or (size == max(plan.sizes) and tenants == 1):
            found["loom"]["under_load"] = concurrency(
                server, token, namespace_of(0, tenants), corpus.questions, seconds=5 if plan.brief else 20
            )
    found["exact numpy"] = _numpy(corpus, size, tenants)
    if plan.with_peers and size <= _PEERS_UP_TO:
        for peer in PEERS:
            found[peer] = _peer(peer, corpus, size, tenants, timed=20 if plan.brief else _PEER_TIMED)
    return found


def load_memories(corpus: Corpus, size: int, tenants: int, folder: Path) -> float:
    """Fills a data directory before a Loom starts on it, in a process of its own: one engine opens one directory."""
    base, texts = WORK / "load-base.npy", WORK / "load-texts.json"
    np.save(base, corpus.base)
    texts.write_text(json.dumps(corpus.texts), "utf-8")
    job = WORK / "load.json"
    told = {
        "data_dir": str(folder), "base": str(base), "texts": str(texts), "size": size, "tenants": tenants,
        "model": _MODEL,
    }  # fmt: skip
    job.write_text(json.dumps(told), "utf-8")
    command = [sys.executable, "-m", "bench.memory_load", str(job)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent.parent)
    if done.returncode:
        sys.exit(f"bench: the memories were not loaded:\n{done.stderr[-3000:]}")
    return float(json.loads(done.stdout.strip().splitlines()[-1])["per_s"])


def token_for(server: RunningLoom, size: int, tenants: int) -> str:
    """Returns a token that writes every namespace, after making those of the memories."""
    names = [namespace_of(number, tenants) for number in range(min(size, tenants))]

    async def make() -> str:
        key = ServiceKey.load(server.data_dir / "keys" / f"{OPERATOR}.jwk")
        async with open_channel(server.grpc["identity"], key) as channel:
            identity = identity_pb2_grpc.IdentityServiceStub(channel)
            for name in names:
                await identity.CreateNamespace(identity_pb.CreateNamespaceRequest(org="default", name=name))
            made = await identity.CreateToken(
                identity_pb.CreateTokenRequest(
                    org="default",
                    namespaces=[identity_pb.NamespaceRole(namespace="*", role="writer")],
                    subject="sa:bench",
                    ttl_s=86_400,
                )
            )
            return str(made.token)

    return asyncio.run(make())


def _loom(server: RunningLoom, token: str, corpus: Corpus, size: int, tenants: int) -> dict[str, Any]:
    questions = corpus.questions[:_TIMED]
    with Loom(server.http_url, token, timeout_s=120) as client:

        def search(number: int, **more: Any) -> Any:
            namespace = namespace_of(number, min(tenants, size))
            return client.memory.search(questions[number], namespace=namespace, top_k=_TOP_K, **more)

        # Other texts than the questions that are timed, whose embeddings would be kept.
        cold = [
            seconds_of(lambda n=n: client.memory.search(corpus.texts[-1 - n], namespace=namespace_of(n, tenants)))
            for n in range(min(20, tenants))
        ]
        warm_s = _warm(client, server, min(tenants, size), corpus)
        numbers = range(len(questions))
        fresh = [corpus.questions[_TIMED + number] for number in numbers if _TIMED + number < len(corpus.questions)]
        embed = asyncio.run(embedding_times(server, fresh))
        searches = [seconds_of(lambda n=n: search(n)) for n in numbers]
        again = [seconds_of(lambda n=n: search(n)) for n in numbers]
        hybrid = {
            "search": percentiles(searches),
            "search_again": percentiles(again),
            "embed_query": percentiles(embed),
        }
        # Before the writes, which are in none of the exact answers.
        overlap = _overlap(client, corpus, size, tenants)
        sets = [
            seconds_of(
                lambda n=n: client.memory.set(
                    f"{corpus.texts[n]} (run {time.time_ns():x})", namespace=namespace_of(n, min(tenants, size))
                )
            )
            for n in range(_SETS)
        ]
    return hybrid | {
        "above_embedding_p50_ms": round(hybrid["search"]["p50_ms"] - hybrid["embed_query"]["p50_ms"], 2),
        "namespaces_held": _events(server, "namespace_loaded"),
        "search_not_held": percentiles(cold),
        "warm_up_s": round(warm_s, 1),
        "set": percentiles(sets),
        "overlap_with_exact": overlap,
        "rss_mb": server.rss_bytes() >> 20,
        "disk_mb": server.disk_bytes() >> 20,
    }


def _warm(client: Loom, server: RunningLoom, tenants: int, corpus: Corpus) -> float:
    """Searches each namespace twice and waits until all that fit are held, as namespaces in use are."""
    began = time.perf_counter()
    for _ in range(2):
        for number in range(tenants):
            client.memory.search(corpus.texts[number], namespace=namespace_of(number, tenants))
    until = time.perf_counter() + _LOADED_WITHIN_S
    while time.perf_counter() < until and _events(server, "namespace_loaded", "namespace_too_large") < tenants:
        time.sleep(0.2)
    return time.perf_counter() - began


def _events(server: RunningLoom, *names: str) -> int:
    told = (server.data_dir / "loom.log").read_text("utf-8", errors="replace")
    return sum(told.count(f'"event": "{name}"') for name in names)


async def embedding_times(server: RunningLoom, questions: Sequence[str]) -> list[float]:
    """Times what a search asks the embedding service, for questions that it has not seen."""
    key = ServiceKey.load(server.data_dir / "keys" / "memory.jwk")
    found = []
    async with open_channel(server.grpc["embedding"], key) as channel:
        stub = embedding_pb2_grpc.EmbeddingServiceStub(channel)
        with bind(Call(op="bench")):
            for question in questions:
                began = time.perf_counter()
                await stub.EmbedQuery(embedding_pb.EmbedQueryRequest(text=question))
                found.append(time.perf_counter() - began)
    return found


def _overlap(client: Loom, corpus: Corpus, size: int, tenants: int) -> float:
    """Returns the share of the exact nearest that a search by vectors alone shows as its most similar ones.

    Ten are compared, or as many as it shows: what lies below the floor of the model is in no answer. The exact ones are
    those of the vector that it searches by, which is not the question's own where that names somebody: of the question
    alone, this would measure how it is read, and not what is lost on the way.
    """
    shares = []
    tenants = min(tenants, size)
    for number in range(min(40, len(corpus.questions))):
        mine = np.arange(tenant_of(number, tenants), size, tenants)
        cosines = _vectors(corpus.base, mine, size) @ corpus.searched[number]
        hits = client.memory.search(
            corpus.questions[number], namespace=namespace_of(number, tenants), top_k=50, search_mode="vector"
        ).hits
        nearest = sorted(hits, key=lambda hit: -(hit.similarity or 0.0))[:_TOP_K]
        exact = {f"m-{mine[place]:08}" for place in np.argsort(-cosines, kind="stable")[: len(nearest)]}
        if exact:
            shares.append(len(exact & {hit.memory.key for hit in nearest if hit.memory}) / len(exact))
    return round(float(np.mean(shares)), 4)


def _vectors(base: Vectors, numbers: Any, size: int) -> Vectors:
    """Returns the vectors of some memories; they are made in the batches in which they were stored."""
    made = np.empty((len(numbers), base.shape[1]), np.float32)
    for first in range(0, size, 2_000):
        among = (numbers >= first) & (numbers < first + 2_000)
        if among.any():
            made[among] = vectors_of(base, first, min(2_000, size - first))[numbers[among] - first]
    return made


def _numpy(corpus: Corpus, size: int, tenants: int) -> dict[str, Any]:
    tenants = min(tenants, size)
    mine = _vectors(corpus.base, np.arange(0, size, tenants), size)
    taken = []
    for query in corpus.asked[:_TIMED]:
        began = time.perf_counter()
        cosines = mine @ query
        best = np.argpartition(-cosines, min(_TOP_K, len(cosines) - 1))[:_TOP_K]
        best[np.argsort(-cosines[best])]
        taken.append(time.perf_counter() - began)
    return {"search": percentiles(taken)}


def _peer(peer: str, corpus: Corpus, size: int, tenants: int, timed: int) -> dict[str, Any]:
    """Measures a peer in a process and an environment of its own; a run does not need it to succeed."""
    python = _peer_environment()
    job, base, asked = WORK / f"{peer}.json", WORK / "peer-base.npy", WORK / "peer-asked.npy"
    np.save(base, corpus.base)
    np.save(asked, corpus.asked[: timed + 5])
    texts = [text_of(corpus.texts, number) for number in range(size + timed)]
    job.write_text(
        json.dumps({"texts": texts, "base": str(base), "asked": str(asked), "timed": timed, "tenants": tenants}),
        "utf-8",
    )
    command = [str(python), str(Path(__file__).parent / "peers.py"), peer, str(job)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=7200)
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1:] or ["failed"]}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


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


def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="loom-bench-", ignore_cleanup_errors=True)


def seconds_of(work: Callable[[], object]) -> float:
    """Returns how long a call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
