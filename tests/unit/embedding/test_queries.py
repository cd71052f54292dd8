"""Queries: folding, cache per organisation, one call for many who ask, bounds."""

import asyncio
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from loom_common.attribution import Attribution, Kind
from loom_common.call import Call, bind
from loom_common.clock import FakeClock
from loom_common.errors import EmbedTimeout, InvalidArgument
from loom_embedding.app.queries import MAX_QUERY_CHUNKS, QueryCache, QueryEmbedding
from loom_embedding.domain.embedder import Vector
from loom_embedding.domain.vectors import MalformedEmbedding
from loom_embedding.providers.fake import FakeEmbedder, FakeTokens, fake_model

NAME, DIM = "fake-ngram-64", 64


class Slow(FakeEmbedder):
    """The fake, which can be held up; keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__(NAME, DIM)
        self.asked: list[str] = []
        self.cancelled = 0
        self.go = asyncio.Event()
        self.go.set()
        self.failure: Exception | None = None
        self.changed = asyncio.Event()

    async def embed(self, text: str) -> Vector:
        self.asked.append(text)
        self.changed.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            self.changed.set()
            raise
        if self.failure is not None:
            raise self.failure
        return await super().embed(text)

    async def embed_many(self, texts: Sequence[str]) -> list[Vector]:
        raise AssertionError("a query is never embedded as a stored text")


class Rig:
    def __init__(self, embedder: Slow | None = None, *, size: int = 100, ttl_s: float = 60.0) -> None:
        self.clock = FakeClock()
        self.embedder = embedder or Slow()
        cache = QueryCache(size, ttl_s, self.clock.monotonic_s)
        self.queries = QueryEmbedding(self.embedder, fake_model(NAME, DIM), FakeTokens(), cache)

    async def ask(self, text: str, org: str | None = "acme", kind: Kind = Kind.REQUEST, **more: int) -> Vector:
        attribution = Attribution(org=org, kind=kind) if org is not None else None
        with bind(Call(attribution=attribution)):
            return await self.queries.embed(text, **more)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits until something holds that the embedder changes."""
        async with asyncio.timeout(5):
            while not condition():
                self.embedder.changed.clear()
                await self.embedder.changed.wait()

    async def waiting(self, count: int) -> None:
        """Waits until the embedder was asked `count` times."""
        await self.until(lambda: len(self.embedder.asked) >= count)


async def test_white_space_is_folded_before_the_embedder_and_the_cache() -> None:
    rig = Rig()
    first = await rig.ask("  dark \n\t mode ")
    assert rig.embedder.asked == ["dark mode"]
    assert np.array_equal(first, await rig.ask("dark mode"))
    assert len(rig.embedder.asked) == 1


async def test_a_query_of_white_space_alone_is_refused() -> None:
    with pytest.raises(InvalidArgument) as caught:
        await Rig().ask(" \n\u3000 ")
    assert [violation.field for violation in caught.value.fields] == ["text"]


async def test_one_organisation_is_never_served_from_anothers_cache() -> None:
    rig = Rig()
    await rig.ask("dark mode", "acme")
    await rig.ask("dark mode", "globex")
    assert len(rig.embedder.asked) == 2


@pytest.mark.parametrize(("org", "kind"), [(None, Kind.REQUEST), ("acme", Kind.JOB), ("", Kind.SYSTEM)])
async def test_a_call_outside_a_request_passes_the_cache_by(org: str | None, kind: Kind) -> None:
    rig = Rig()
    await rig.ask("dark mode", org, kind)
    await rig.ask("dark mode", org, kind)
    assert len(rig.embedder.asked) == 2


async def test_the_cache_forgets_after_its_time_and_beyond_its_size() -> None:
    rig = Rig(size=2, ttl_s=60)
    await rig.ask("a")
    rig.clock.advance(61)
    await rig.ask("a")
    assert rig.embedder.asked == ["a", "a"]
    for text in ("b", "c", "a"):
        await rig.ask(text)
    assert rig.embedder.asked == ["a", "a", "b", "c", "a"]


async def test_a_cache_of_size_zero_keeps_nothing() -> None:
    rig = Rig(size=0)
    await rig.ask("a")
    await rig.ask("a")
    assert len(rig.embedder.asked) == 2


async def test_those_who_ask_the_same_at_once_share_one_call_and_only_within_their_organisation() -> None:
    rig = Rig()
    rig.embedder.go.clear()
    asks = [asyncio.create_task(rig.ask("dark mode", org)) for org in ("acme", "acme", "acme", "globex")]
    await rig.waiting(2)
    rig.embedder.go.set()
    vectors = await asyncio.gather(*asks)
    assert len(rig.embedder.asked) == 2
    assert all(np.array_equal(vectors[0], vector) for vector in vectors)


async def test_a_shared_call_outlives_the_one_who_began_it() -> None:
    rig = Rig()
    rig.embedder.go.clear()
    first = asyncio.create_task(rig.ask("dark mode"))
    await rig.waiting(1)
    second = asyncio.create_task(rig.ask("dark mode"))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    rig.embedder.go.set()
    assert len(await second) == DIM
    assert (len(rig.embedder.asked), rig.embedder.cancelled) == (1, 0)


async def test_a_call_that_nobody_waits_for_any_more_is_cancelled() -> None:
    rig = Rig()
    rig.embedder.go.clear()
    alone = asyncio.create_task(rig.ask("dark mode"))
    await rig.waiting(1)
    alone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await alone
    await rig.until(lambda: rig.embedder.cancelled == 1)


@pytest.mark.parametrize("org", ["acme", None])
async def test_a_bound_that_passes_in_every_attempt_is_an_embed_timeout(org: str | None) -> None:
    rig = Rig()
    rig.embedder.go.clear()
    with pytest.raises(EmbedTimeout) as caught:
        await rig.ask("dark mode", org, bound_ms=20, retries=2)
    assert caught.value.detail == {"bound_ms": 20, "attempts": 3}
    assert len(rig.embedder.asked) == 3
    await rig.until(lambda: rig.embedder.cancelled == 3)


async def test_an_attempt_after_a_slow_one_may_answer() -> None:
    rig = Rig()
    rig.embedder.go.clear()
    task = asyncio.create_task(rig.ask("dark mode", bound_ms=250, retries=1))
    await rig.waiting(2)
    rig.embedder.go.set()
    assert len(await task) == DIM


async def test_a_failure_reaches_everyone_who_waits_and_is_not_kept() -> None:
    rig = Rig()
    rig.embedder.go.clear()
    rig.embedder.failure = MalformedEmbedding("scripted")
    asks = [asyncio.create_task(rig.ask("dark mode")) for _ in range(3)]
    await rig.waiting(1)
    rig.embedder.go.set()
    outcomes = await asyncio.gather(*asks, return_exceptions=True)
    assert all(isinstance(outcome, MalformedEmbedding) for outcome in outcomes)
    rig.embedder.failure = None
    assert len(await rig.ask("dark mode")) == DIM


async def test_a_query_longer_than_the_window_is_the_mean_of_its_first_chunks() -> None:
    rig = Rig()
    words = [f"word{number}" for number in range(600)]
    vector = await rig.ask(" ".join(words))
    assert 2 < len(rig.embedder.asked) < MAX_QUERY_CHUNKS
    assert set(" ".join(rig.embedder.asked).split()) == set(words)
    assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("text", ["ZX-" * 2700, "word " * 1600])
async def test_of_the_longest_query_no_more_than_its_first_chunks_are_embedded(text: str) -> None:
    rig = Rig()
    vector = await rig.ask(text)
    assert len(rig.embedder.asked) == MAX_QUERY_CHUNKS
    assert text.startswith(rig.embedder.asked[0])
    assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-5)


class FirstRefused(Slow):
    """Has no vector for the first text that it is asked for, and never answers for another."""

    async def embed(self, text: str) -> Vector:
        if not self.asked:
            self.asked.append(text)
            raise MalformedEmbedding("scripted")
        return await super().embed(text)


async def test_a_query_of_which_one_chunk_fails_asks_for_the_others_no_longer() -> None:
    rig = Rig(FirstRefused())
    rig.embedder.go.clear()
    with pytest.raises(MalformedEmbedding):
        await rig.ask("word " * 600)
    others = len(rig.embedder.asked) - 1
    await rig.until(lambda: rig.embedder.cancelled == others > 0)


async def test_the_usage_lands_on_the_call_that_was_embedded_and_a_cached_answer_is_free() -> None:
    rig = Rig()
    attribution = Attribution(org="acme")
    with bind(Call(attribution=attribution)) as first:
        await rig.queries.embed("dark mode")
    with bind(Call(attribution=attribution)) as second:
        await rig.queries.embed("dark mode")
    assert first.usage.embedding_tokens == 2
    assert not second.usage
