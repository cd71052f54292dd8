"""Queries and stored texts in front of the cache that processes share, and what one organisation sees of another."""

import asyncio
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from loom_common.attribution import Attribution, Kind
from loom_common.call import Call, bind
from loom_embedding.app.queries import QueryCache, QueryEmbedding
from loom_embedding.app.shared_cache import Purpose
from loom_embedding.app.texts import TextEmbedding
from loom_embedding.domain.embedder import Outcome, Vector
from loom_embedding.providers.fake import FakeEmbedder, FakeTokens, fake_model

NAME, DIM = "fake-ngram-64", 64


class Shared:
    """A shared cache in memory that writes at once; keeps who asked for what."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, Purpose, str], Vector] = {}
        self.asked: list[tuple[str, Purpose, tuple[str, ...]]] = []

    async def get(self, org: str, purpose: Purpose, texts: Sequence[str]) -> Mapping[str, Vector]:
        self.asked.append((org, purpose, tuple(texts)))
        found = {text: self.held.get((org, purpose, text)) for text in texts if org}
        return {text: vector for text, vector in found.items() if vector is not None}

    def put(self, org: str, purpose: Purpose, vectors: Mapping[str, Vector]) -> None:
        if org:
            self.held |= {(org, purpose, text): vector for text, vector in vectors.items()}


class Counting(FakeEmbedder):
    """The fake, which keeps for whom it embedded, and can be held up."""

    def __init__(self) -> None:
        super().__init__(NAME, DIM)
        self.texts: list[str] = []
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()

    async def embed(self, text: str) -> Vector:
        self.texts.append(text)
        self.begun.set()
        await self.go.wait()
        return await super().embed(text)

    async def embed_each(self, texts: Sequence[str]) -> list[Outcome]:
        self.texts += texts
        return await super().embed_each(texts)


class Process:
    """One process: its own cache and flights, and the shared table."""

    def __init__(self, shared: Shared) -> None:
        self.embedder = Counting()
        served, tokens = fake_model(NAME, DIM), FakeTokens()
        cache = QueryCache(100, 60, lambda: 0.0)
        self.queries = QueryEmbedding(self.embedder, served, tokens, cache, shared=shared)
        self.stored = TextEmbedding(self.embedder, served, tokens, shared)

    async def ask(self, text: str, org: str = "acme", kind: Kind = Kind.REQUEST) -> Vector:
        with bind(Call(attribution=Attribution(org=org, kind=kind))):
            return await self.queries.embed(text)

    async def store(self, texts: Sequence[str], org: str = "acme", kind: Kind = Kind.REQUEST) -> list[Vector]:
        with bind(Call(attribution=Attribution(org=org, kind=kind))):
            return [result.chunks[0].vector for result in await self.stored.embed(texts)]


async def test_another_process_of_the_same_organisation_need_not_embed_again() -> None:
    shared = Shared()
    first, second = Process(shared), Process(shared)
    vector = await first.ask("dark mode")
    assert np.array_equal(await second.ask(" dark  mode "), vector)
    [one, two] = await first.store(["a", "b"])
    assert np.array_equal((await second.store(["b", "c", "b"]))[0], two)
    assert second.embedder.texts == ["c"]
    assert not np.array_equal(one, two)


async def test_queries_and_stored_texts_never_serve_each_other() -> None:
    process = Process(Shared())
    await process.ask("dark mode")
    await process.store(["dark mode"])
    assert process.embedder.texts == ["dark mode", "dark mode"]


@pytest.mark.parametrize(("org", "kind"), [("acme", Kind.JOB), ("", Kind.SYSTEM)])
async def test_a_call_outside_a_request_neither_finds_nor_leaves_anything(org: str, kind: Kind) -> None:
    shared = Shared()
    process = Process(shared)
    await process.ask("dark mode", org, kind)
    await process.store(["dark mode"], org, kind)
    assert shared.held == {}
    await process.ask("dark mode")
    await process.ask("dark mode", org, kind)
    assert len(process.embedder.texts) == 4


async def seen_by(org: str, process: Process, shared: Shared) -> list[object]:
    """Returns all that takes time while an organisation asks and stores: its look-ups and what is embedded for it."""
    asked, embedded = len(shared.asked), len(process.embedder.texts)
    await process.ask("the merger closes in march", org)
    await process.store(["the merger closes in march"], org)
    return [*shared.asked[asked:], *process.embedder.texts[embedded:]]


async def test_what_takes_time_is_the_same_whether_or_not_another_organisation_embedded_the_text_before() -> None:
    seen = []
    for embedded_before in (False, True):
        shared = Shared()
        process = Process(shared)
        if embedded_before:
            await seen_by("acme", process, shared)
        seen.append(await seen_by("globex", process, shared))
    assert seen[0] == seen[1]


async def test_a_call_that_runs_for_another_organisation_is_not_joined() -> None:
    process = Process(Shared())
    process.embedder.go.clear()
    theirs = asyncio.create_task(process.ask("the merger closes in march", "acme"))
    await process.embedder.begun.wait()
    process.embedder.begun.clear()
    mine = asyncio.create_task(process.ask("the merger closes in march", "globex"))
    async with asyncio.timeout(5):
        await process.embedder.begun.wait()  # a call of its own has begun, and waits as long as any new text's
    assert len(process.embedder.texts) == 2
    process.embedder.go.set()
    assert np.array_equal(await mine, await theirs)
