"""The batch queue: order, sharing, turns, priority, limits, failures, cancellation."""

import asyncio
import threading
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from loom_common.errors import BackendUnavailable, Overloaded
from loom_embedding.domain.vectors import MalformedEmbedding
from loom_embedding.providers.batches import BATCH_TEXTS, BATCH_TOKENS, MAX_WAITING_TOKENS, BatchQueue, Rows


class Model:
    """Embeds a text as its length, notes batches, and stands still while it is told to."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.running = threading.Event()
        self.released = threading.Event()
        self.released.set()
        self.check: Callable[[Sequence[str]], None] = lambda texts: None

    def __call__(self, texts: Sequence[str]) -> Rows:
        self.batches.append(list(texts))
        self.running.set()
        if "query" not in texts:
            assert self.released.wait(10)
        self.check(texts)
        return np.array([[float(len(text))] for text in texts])

    async def reached(self) -> None:
        """Waits until a batch runs."""
        await asyncio.to_thread(self.running.wait, 10)


async def bulk(queue: BatchQueue, texts: Sequence[str], tokens: int = 4) -> list[float]:
    return [float(row[0]) for row in await queue.embed_bulk(texts, [tokens] * len(texts))]


@pytest.fixture
def model() -> Model:
    return Model()


async def test_answers_come_in_the_order_asked_whatever_the_batches(model: Model) -> None:
    queue = BatchQueue(model, max_waiting=1000)
    texts = ["x" * (number * 7 % 50) for number in range(100)]
    rows = await queue.embed_bulk(texts, [len(text) for text in texts])
    assert [row[0] for row in rows] == [len(text) for text in texts]
    assert max(map(len, model.batches)) <= BATCH_TEXTS
    await queue.aclose()


async def test_a_batch_of_long_texts_is_cut_by_its_padded_size(model: Model) -> None:
    queue = BatchQueue(model, max_waiting=1000)
    await bulk(queue, ["x"] * 20, tokens=256)
    assert max(map(len, model.batches)) == BATCH_TOKENS // 256
    await queue.aclose()


async def test_concurrent_callers_share_batches_and_a_small_call_does_not_wait_for_a_large_one(model: Model) -> None:
    queue = BatchQueue(model, max_waiting=10_000)
    model.released.clear()
    large = asyncio.create_task(bulk(queue, ["large"] * 500))
    await model.reached()
    small = asyncio.create_task(bulk(queue, ["small"]))
    await asyncio.sleep(0)
    model.released.set()
    assert await small == [5.0]
    assert "small" in model.batches[1]
    assert len(model.batches) < 10
    assert await large == [5.0] * 500
    await queue.aclose()


async def test_a_query_is_answered_while_stored_texts_hold_their_lane(model: Model) -> None:
    queue = BatchQueue(model, max_waiting=10_000)
    model.released.clear()
    large = asyncio.create_task(bulk(queue, ["large"] * 500))
    await model.reached()
    row = await asyncio.wait_for(queue.embed_query("query", 3), 5)
    assert row[0] == 5.0
    assert not large.done()
    model.released.set()
    await large
    await queue.aclose()


async def test_too_much_waiting_work_is_refused_and_what_waits_is_still_done(model: Model) -> None:
    queue = BatchQueue(model, max_waiting=50)
    model.released.clear()
    first = asyncio.create_task(bulk(queue, ["text"] * 100))
    await model.reached()
    with pytest.raises(Overloaded) as caught:
        await bulk(queue, ["more"])
    assert caught.value.retry_after_s is not None
    model.released.set()
    assert await first == [4.0] * 100
    assert await bulk(queue, ["more"]) == [4.0]
    await queue.aclose()


async def test_a_call_is_refused_while_more_tokens_wait_than_its_caller_has_time_for(model: Model) -> None:
    queue = BatchQueue(model, max_waiting=10_000)
    model.released.clear()
    first = asyncio.create_task(bulk(queue, ["text"] * 1000, tokens=MAX_WAITING_TOKENS // 900))
    await model.reached()
    with pytest.raises(Overloaded):
        await bulk(queue, ["more"])
    model.released.set()
    await first
    assert queue._bulk.waiting_tokens == 0
    assert await bulk(queue, ["more"]) == [4.0]
    await queue.aclose()


async def test_one_bad_text_loses_no_other(model: Model) -> None:
    def refuse(texts: Sequence[str]) -> None:
        if "bad" in texts:
            raise ValueError("scripted")

    model.check = refuse
    queue = BatchQueue(model, max_waiting=100)
    good, bad = await asyncio.gather(bulk(queue, ["good"] * 5), bulk(queue, ["bad"]), return_exceptions=True)
    assert good == [4.0] * 5
    assert isinstance(bad, ValueError)
    await queue.aclose()


async def test_one_bad_text_loses_no_other_of_its_own_call(model: Model) -> None:
    def refuse(texts: Sequence[str]) -> None:
        if "bad" in texts:
            raise ValueError("scripted")

    model.check = refuse
    queue = BatchQueue(model, max_waiting=100)
    first, bad, last = await queue.embed_bulk_each(["one", "bad", "three"], [4, 4, 4])
    assert (first, last) == ([3.0], [5.0])
    assert isinstance(bad, MalformedEmbedding)
    await queue.aclose()


async def test_fewer_vectors_than_texts_is_a_failure_and_not_a_mix_up() -> None:
    queue = BatchQueue(lambda texts: np.zeros((0, 1)), max_waiting=100)
    with pytest.raises(MalformedEmbedding):
        await bulk(queue, ["a", "b"])
    await queue.aclose()


async def test_texts_of_a_call_that_was_given_up_are_not_embedded(model: Model) -> None:
    queue = BatchQueue(model, max_waiting=10_000)
    model.released.clear()
    given_up = asyncio.create_task(bulk(queue, ["gone"] * 300))
    await model.reached()
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    model.released.set()
    assert await bulk(queue, ["kept"]) == [4.0]
    assert sum(batch.count("gone") for batch in model.batches) <= BATCH_TEXTS
    await queue.aclose()


async def test_a_closed_queue_takes_no_work(model: Model) -> None:
    queue = BatchQueue(model, max_waiting=10)
    assert await bulk(queue, []) == []
    await queue.aclose()
    with pytest.raises(BackendUnavailable):
        await bulk(queue, ["late"])


async def test_the_batches_of_one_call_run_side_by_side() -> None:
    meet = threading.Barrier(2, timeout=10)

    def both_at_once(texts: Sequence[str]) -> Rows:
        meet.wait()
        return np.array([[float(len(text))] for text in texts])

    queue = BatchQueue(both_at_once, max_waiting=100, threads=2)
    assert await bulk(queue, ["a", "bb"]) == [1.0, 2.0]
    await queue.aclose()


async def test_one_call_is_shared_among_idle_threads(model: Model) -> None:
    queue = BatchQueue(model, max_waiting=100, threads=2)
    await bulk(queue, ["text"] * BATCH_TEXTS)
    assert [len(batch) for batch in model.batches] == [BATCH_TEXTS // 2] * 2
    await queue.aclose()


async def test_a_text_that_comes_in_the_step_in_which_the_last_worker_ends_is_embedded(model: Model) -> None:
    queue = BatchQueue(model, max_waiting=100)
    first = asyncio.create_task(bulk(queue, ["first"]))
    before = asyncio.all_tasks()
    await asyncio.sleep(0)
    [worker] = asyncio.all_tasks() - before
    while not worker.done():  # noqa: ASYNC110 - step by step, to meet the one in which it ends
        await asyncio.sleep(0)
    async with asyncio.timeout(5):
        assert await bulk(queue, ["late"]) == [4.0]
    assert await first == [5.0]
    await queue.aclose()
