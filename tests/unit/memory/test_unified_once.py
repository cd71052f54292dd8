"""One embedding for each text of a call."""

import asyncio

import pytest

from loom_common.errors import EmbedTimeout
from loom_memory.app.embedding_fake import FakeEmbedding
from loom_memory.unified.app.once import OnceEmbedding, embeddings_once


async def test_a_text_that_many_legs_ask_for_at_once_is_embedded_once() -> None:
    port = FakeEmbedding()
    once = OnceEmbedding(port)
    port.gate.clear()
    async with embeddings_once():
        asked = [asyncio.create_task(once.embed_query("q")) for _ in range(5)]
        other = asyncio.create_task(once.embed_query("another"))
        await asyncio.sleep(0)
        port.gate.set()
        vectors = await asyncio.gather(*asked)
        await other
    assert port.queries == 2
    assert all(vector == vectors[0] for vector in vectors)


async def test_blocks_inside_a_block_share_its_vectors_and_calls_share_none() -> None:
    port = FakeEmbedding()
    once = OnceEmbedding(port)
    async with embeddings_once():
        await once.embed_query("q")
        async with embeddings_once():
            await once.embed_query("q")
        await once.embed_query("q")
    assert port.queries == 1
    async with embeddings_once():
        await once.embed_query("q")
    await once.embed_query("q")
    assert port.queries == 3


async def test_a_leg_that_leaves_does_not_take_the_vector_from_the_others() -> None:
    port = FakeEmbedding()
    once = OnceEmbedding(port)
    port.gate.clear()
    async with embeddings_once():
        first, second = [asyncio.create_task(once.embed_query("q")) for _ in range(2)]
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        port.gate.set()
        assert await second
    assert first.cancelled()
    assert port.queries == 1


async def test_a_failure_is_everybodys_who_asked() -> None:
    port = FakeEmbedding()
    port.refusal = EmbedTimeout("late")
    once = OnceEmbedding(port)
    async with embeddings_once():
        for _ in range(2):
            with pytest.raises(EmbedTimeout):
                await once.embed_query("q")


async def test_what_nobody_waits_for_ends_with_the_call() -> None:
    port = FakeEmbedding()
    once = OnceEmbedding(port)
    port.gate.clear()
    before = asyncio.all_tasks()
    async with embeddings_once():
        left = asyncio.create_task(once.embed_query("q"))
        await asyncio.sleep(0)
        left.cancel()
    await asyncio.gather(left, return_exceptions=True)
    assert asyncio.all_tasks() == before
