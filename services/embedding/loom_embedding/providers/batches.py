"""Runs a blocking model in threads of its own: queries in one lane, everything else in another.

A query never waits behind stored texts. In the bulk lane callers take turns text by text, so that one call with two
thousand texts does not hold up another with one. Texts of several callers share a batch.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loom_common.errors import BackendUnavailable, Overloaded
from loom_embedding.domain.vectors import MalformedEmbedding

Rows: TypeAlias = NDArray[np.floating[Any]]
"""Shapes: [batch, dim]."""

BATCH_TEXTS: Final = 16
"""Source: measured 2026-11-30 on two cores: larger batches gained nothing."""

BATCH_TOKENS: Final = 1024
"""Most tokens of one batch, padding included; bounds its time. Source: chosen; 16 texts of 300 letters."""


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
        embed_batch: Embeds texts; blocking, called from two threads at once. Shapes: n texts in, [n, dim] out.
        max_waiting: Texts that may wait in the bulk lane before further calls are refused.
    """

    def __init__(self, embed_batch: Callable[[Sequence[str]], Rows], *, max_waiting: int) -> None:
        self._embed_batch = embed_batch
        self._queries = _Lane("embed-query", self._run_batch)
        self._bulk = _Lane("embed-bulk", self._run_batch)
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
        waiting = self._bulk.waiting
        if waiting >= self._max_waiting:
            raise Overloaded(
                "Too many texts wait to be embedded. Send them again in a moment.", detail={"waiting": waiting}
            )
        return await self._embed(self._bulk, texts, tokens)

    async def aclose(self) -> None:
        """Stops taking work and ends the threads; a batch that runs is finished first."""
        self._closed = True
        await asyncio.gather(self._queries.aclose(), self._bulk.aclose())

    async def _embed(self, lane: "_Lane", texts: Sequence[str], tokens: Sequence[int]) -> list[Rows]:
        if self._closed:
            raise BackendUnavailable("The embedding service is stopping.")
        if not texts:
            return []
        loop = asyncio.get_running_loop()
        added = [_Text(text, count, loop.create_future()) for text, count in zip(texts, tokens, strict=True)]
        lane.add(added)
        try:
            return list(await asyncio.gather(*(one.answer for one in added)))
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
    """One thread and the calls that wait for it, taking turns."""

    def __init__(self, name: str, run_batch: Callable[[Sequence[_Text]], Rows]) -> None:
        self._run_batch = run_batch
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._turns: deque[_Turn] = deque()
        self._running: asyncio.Future[None] | None = None
        self.waiting = 0

    def add(self, texts: Sequence[_Text]) -> None:
        self._turns.append(deque(sorted(texts, key=lambda one: -one.tokens)))
        self.waiting += len(texts)
        if self._running is None:
            self._running = asyncio.ensure_future(self._work())

    async def aclose(self) -> None:
        for turn in self._turns:
            for one in turn:
                one.answer.cancel()
        if self._running is not None:
            await self._running
        self._executor.shutdown(wait=True)

    async def _work(self) -> None:
        try:
            while batch := self._take():
                try:
                    await self._run(batch)
                except Exception:  # noqa: BLE001 - whatever the model raises; one text must not lose the others
                    await self._run_singly(batch)
        finally:
            self._running = None

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
        while self._turns and len(batch) < BATCH_TEXTS:
            turn = self._turns[0]
            while turn and turn[0].answer.done():
                turn.popleft()
                self.waiting -= 1
            if not turn:
                self._turns.popleft()
                continue
            longest = max(longest, turn[0].tokens)
            if batch and longest * (len(batch) + 1) > BATCH_TOKENS:
                break
            batch.append(turn.popleft())
            self.waiting -= 1
            self._turns.rotate(-1)
        return batch
