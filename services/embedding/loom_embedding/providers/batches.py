"""Runs a blocking model in threads of its own: queries in one lane, everything else in another.

A query never waits behind stored texts. In the bulk lane callers take turns text by text, so that one call with two
thousand texts does not hold up another with one. Texts of several callers share a batch, and the batches of a lane run
side by side, one thread each: a call of sixteen took 185 ms so and 295 with the two threads of one session (least of
eight in turn, measured 2026-11-30 on two busy cores).
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import Any, Final, TypeAlias

import numpy as np
import structlog
from numpy.typing import NDArray

from loom_common.errors import BackendUnavailable, Overloaded
from loom_embedding.domain.vectors import MalformedEmbedding

Rows: TypeAlias = NDArray[np.floating[Any]]
"""Shapes: [batch, dim]."""

BATCH_TEXTS: Final = 16
"""Source: measured 2026-11-30 on two cores: larger batches gained nothing."""

BATCH_TOKENS: Final = 1024
"""Most tokens of one batch, padding included; bounds its time. Source: chosen; 16 texts of 300 letters."""


MAX_WAITING_TOKENS: Final = 140_000
"""Tokens that may wait in the bulk lane before further calls are refused: they would outlast their callers.

Source: bench/embedding.py, 2026-11-30: 28 s of two cores' work.
"""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Text:
    text: str
    tokens: int
    answer: asyncio.Future[Rows]


_Turn: TypeAlias = deque[_Text]
"""What is left of one call, its longest text first: neighbours of like length need little padding."""


class BatchQueue:
    """Gathers texts into batches and embeds them off the event loop. Belongs to one loop.

    Args:
        embed_batch: Embeds texts; blocking, called from several threads at once. Shapes: n texts in, [n, dim] out.
        max_waiting: Texts that may wait in the bulk lane before further calls are refused.
        threads: Batches of each lane that run at once.
    """

    def __init__(self, embed_batch: Callable[[Sequence[str]], Rows], *, max_waiting: int, threads: int = 1) -> None:
        self._embed_batch = embed_batch
        self._queries = _Lane("embed-query", self._run_batch, threads)
        self._bulk = _Lane("embed-bulk", self._run_batch, threads)
        self._max_waiting = max_waiting
        self._closed = False

    async def embed_query(self, text: str, tokens: int) -> Rows:
        """Returns the row of one text that somebody waits for. Shapes: [dim]."""
        return (await self._embed(self._queries, [text], [tokens]))[0]

    async def embed_bulk(self, texts: Sequence[str], tokens: Sequence[int]) -> list[Rows]:
        """Returns one row per text, in order. Shapes: [dim] each.

        Raises:
            Overloaded: Too many texts wait already.
        """
        self._refuse_when_full()
        return await self._embed(self._bulk, texts, tokens)

    async def embed_bulk_each(self, texts: Sequence[str], tokens: Sequence[int]) -> list[Rows | MalformedEmbedding]:
        """Returns one row per text, in order, or why that text has none; it loses no other. Shapes: [dim] each.

        Raises:
            Overloaded: Too many texts wait already.
        """
        self._refuse_when_full()
        with self._added(self._bulk, texts, tokens) as answers:
            outcomes = await asyncio.gather(*answers, return_exceptions=True)
        found: list[Rows | MalformedEmbedding] = []
        for outcome in outcomes:
            if isinstance(outcome, MalformedEmbedding) or not isinstance(outcome, BaseException):
                found.append(outcome)
            elif isinstance(outcome, Exception):
                _log.error("text_not_embedded", exc_info=outcome)
                found.append(MalformedEmbedding("The model failed for the text."))
            else:
                raise outcome  # the queue is closed
        return found

    async def aclose(self) -> None:
        """Stops taking work and ends the threads; a batch that runs is finished first."""
        self._closed = True
        await asyncio.gather(self._queries.aclose(), self._bulk.aclose())

    def _refuse_when_full(self) -> None:
        waiting = self._bulk.waiting
        if waiting >= self._max_waiting or self._bulk.waiting_tokens >= MAX_WAITING_TOKENS:
            raise Overloaded(
                "Too many texts wait to be embedded. Send them again in a moment.", detail={"waiting": waiting}
            )

    async def _embed(self, lane: "_Lane", texts: Sequence[str], tokens: Sequence[int]) -> list[Rows]:
        with self._added(lane, texts, tokens) as answers:
            return list(await asyncio.gather(*answers))

    @contextmanager
    def _added(
        self, lane: "_Lane", texts: Sequence[str], tokens: Sequence[int]
    ) -> Iterator[list[asyncio.Future[Rows]]]:
        if self._closed:
            raise BackendUnavailable("The embedding service is stopping.")
        loop = asyncio.get_running_loop()
        added = [_Text(text, count, loop.create_future()) for text, count in zip(texts, tokens, strict=True)]
        if added:
            lane.add(added)
        try:
            yield [one.answer for one in added]
        finally:
            # Of a call that was given up or failed, the rest is not worth a batch.
            for one in added:
                one.answer.cancel()

    def _run_batch(self, batch: Sequence[_Text]) -> Rows:
        rows = self._embed_batch([one.text for one in batch])
        if len(rows) != len(batch):
            raise MalformedEmbedding("The model answered another number of vectors than there were texts.")
        return rows


class _Lane:
    """Some threads and the calls that wait for them, taking turns."""

    def __init__(self, name: str, run_batch: Callable[[Sequence[_Text]], Rows], threads: int) -> None:
        self._run_batch = run_batch
        self._threads = threads
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._turns: deque[_Turn] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._workers = 0
        self._busy = 0
        self.waiting = 0
        self.waiting_tokens = 0

    def add(self, texts: Sequence[_Text]) -> None:
        self._turns.append(deque(sorted(texts, key=lambda one: -one.tokens)))
        self.waiting += len(texts)
        self.waiting_tokens += sum(one.tokens for one in texts)
        for _ in range(min(self._threads - self._workers, len(texts))):
            self._workers += 1
            # An empty context: the task outlives the request that happened to start it.
            task = asyncio.create_task(self._work(), context=contextvars.Context())
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def aclose(self) -> None:
        for turn in self._turns:
            for one in turn:
                one.answer.cancel()
        await asyncio.gather(*self._running)
        self._executor.shutdown(wait=True)

    async def _work(self) -> None:
        try:
            while batch := self._take():
                self._busy += 1
                try:
                    await self._run(batch)
                except Exception:  # noqa: BLE001 - whatever the model raises; one text must not lose the others
                    await self._run_singly(batch)
                finally:
                    self._busy -= 1
        finally:
            # In the step that found nothing: by `_running`, which the loop tidies a step later, a text that is added
            # in between would wait for a worker that has ended.
            self._workers -= 1

    async def _run(self, batch: Sequence[_Text]) -> None:
        rows = await asyncio.get_running_loop().run_in_executor(self._executor, self._run_batch, batch)
        for one, row in zip(batch, rows, strict=True):
            if not one.answer.done():
                one.answer.set_result(row)

    async def _run_singly(self, batch: Sequence[_Text]) -> None:
        for one in batch:
            try:
                await self._run([one])
            except Exception as error:  # noqa: BLE001 - it belongs to the caller who waits
                if not one.answer.done():
                    one.answer.set_exception(error)

    def _take(self) -> list[_Text]:
        """Returns the next batch, one text of each call in turn; empty when nothing waits any more."""
        batch: list[_Text] = []
        longest = 0
        # What waits is shared among the idle threads, so that none idles while another has all of it.
        share = min(BATCH_TEXTS, ceil(self.waiting / (self._threads - self._busy)))
        while self._turns and len(batch) < share:
            turn = self._turns[0]
            while turn and turn[0].answer.done():
                self._left(turn)
            if not turn:
                self._turns.popleft()
                continue
            longest = max(longest, turn[0].tokens)
            if batch and longest * (len(batch) + 1) > BATCH_TOKENS:
                break
            batch.append(self._left(turn))
            self._turns.rotate(-1)
        return batch

    def _left(self, turn: _Turn) -> _Text:
        """Takes the next text of a call out of what waits."""
        one = turn.popleft()
        self.waiting -= 1
        self.waiting_tokens -= one.tokens
        return one
