"""One embedding for each text of a call, however many legs ask for it.

Legs that run side by side embed the same query. Inside `embeddings_once` whoever asks first has it embedded, and all
others wait for the same vector.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar

from loom_memory.app.embedding import EmbeddedText, EmbeddingPort, ServedModel

_Vector = Sequence[float]
_Memo = dict[tuple[int, str], "asyncio.Task[_Vector]"]

_MEMO: ContextVar[_Memo | None] = ContextVar("loom_memory_embeddings_once", default=None)


@asynccontextmanager
async def embeddings_once() -> AsyncIterator[None]:
    """Embeds each query text once inside the block and the tasks that it starts; blocks within it share its vectors.

    What nobody waits for any more is ended with the block.
    """
    if _MEMO.get() is not None:
        yield
        return
    memo: _Memo = {}
    token = _MEMO.set(memo)
    try:
        yield
    finally:
        _MEMO.reset(token)
        running = [task for task in memo.values() if not task.done()]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)


class OnceEmbedding:
    """An `EmbeddingPort` that goes through the memo of the running call, where there is one."""

    def __init__(self, port: EmbeddingPort) -> None:
        self._port = port

    async def served_model(self) -> ServedModel:
        """See `EmbeddingPort.served_model`."""
        return await self._port.served_model()

    async def ping(self) -> None:
        """See `EmbeddingPort.ping`."""
        await self._port.ping()

    async def embed_query(self, text: str) -> Sequence[float]:
        """See `EmbeddingPort.embed_query`. A failure is everybody's who asked for the text."""
        memo = _MEMO.get()
        if memo is None:
            return await self._port.embed_query(text)
        place = (id(self), text)
        task = memo.get(place)
        if task is None:
            task = memo[place] = asyncio.create_task(self._embed(text))
            task.add_done_callback(_looked_at)
        # Shielded: a leg that runs out of its time must not take the vector from the others.
        return await asyncio.shield(task)

    async def embed_many(self, texts: Sequence[str]) -> list[EmbeddedText]:
        """See `EmbeddingPort.embed_many`."""
        return await self._port.embed_many(texts)

    async def _embed(self, text: str) -> _Vector:
        return await self._port.embed_query(text)


def _looked_at(task: "asyncio.Task[_Vector]") -> None:
    """Takes note of how a task ended: those who asked may all have left."""
    if not task.cancelled():
        task.exception()
