"""Embeds texts that are stored, as they are; a long one in chunks that leave nothing out."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from loom_common import telemetry
from loom_common.errors import PayloadTooLarge, Reason
from loom_embedding.domain.chunking import chunk_spans
from loom_embedding.domain.embedder import Embedder, ServedModel, Span, Tokens, Vector
from loom_embedding.domain.vectors import MalformedEmbedding

MAX_VECTOR_BYTES: Final = 7 * 1024 * 1024
"""Most bytes of vectors in one answer. Source: a gRPC message may have 8 MiB; the rest is for offsets and framing."""

# Source: measured 2026-11-30: below it splitting costs less than handing it to a thread.
_INLINE_CHARS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Chunk:
    """Part of a text and its vector."""

    span: Span
    vector: Vector


@dataclass(frozen=True, slots=True)
class Embedded:
    """What became of one text: its chunks in order, or why it has none."""

    chunks: tuple[Chunk, ...] = ()
    error: Reason | None = None


class TextEmbedding:
    """Embeds texts."""

    def __init__(self, embedder: Embedder, served: ServedModel, tokens: Tokens) -> None:
        self._embedder = embedder
        self._served = served
        self._tokens = tokens

    async def embed(self, texts: Sequence[str]) -> list[Embedded]:
        """Returns one result per text, in order. A text that cannot be embedded does not lose the others.

        Raises:
            Overloaded: Too much work waits already.
            PayloadTooLarge: The texts have more chunks than one answer can carry.
        """
        if sum(map(len, texts)) <= _INLINE_CHARS:
            spans = self._split(texts)
        else:
            spans = await asyncio.to_thread(self._split, texts)
        count = sum(map(len, spans))
        if count * self._served.dim * 4 > MAX_VECTOR_BYTES:
            raise PayloadTooLarge(
                "The texts have more chunks than one answer can carry. Send fewer texts at a time.",
                detail={"chunks": count, "max_chunks": MAX_VECTOR_BYTES // (self._served.dim * 4)},
            )
        pieces = [text[span.start : span.end] for text, own in zip(texts, spans, strict=True) for span in own]
        vectors = iter(await self._vectors(pieces))
        results = [_embedded(own, [next(vectors) for _ in own]) for own in spans]
        failed = sum(result.error is not None for result in results)
        telemetry.add("loom.embedding.texts", len(results) - failed, model=self._served.name, outcome="ok")
        telemetry.add("loom.embedding.texts", failed, model=self._served.name, outcome=Reason.PROVIDER_FAILED.value)
        return results

    def _split(self, texts: Sequence[str]) -> list[list[Span]]:
        return [chunk_spans(text, self._tokens, self._served.budget_tokens) for text in texts]

    async def _vectors(self, pieces: Sequence[str]) -> Sequence[Vector | None]:
        try:
            return await self._embedder.embed_many(pieces)
        except MalformedEmbedding:
            return [await self._vector(piece) for piece in pieces]

    async def _vector(self, piece: str) -> Vector | None:
        try:
            [vector] = await self._embedder.embed_many([piece])
        except MalformedEmbedding:
            return None
        return vector


def _embedded(spans: Sequence[Span], vectors: Sequence[Vector | None]) -> Embedded:
    whole = [Chunk(span, vector) for span, vector in zip(spans, vectors, strict=True) if vector is not None]
    # Half a text's chunks would leave the other half out in silence.
    return Embedded(chunks=tuple(whole)) if len(whole) == len(spans) else Embedded(error=Reason.PROVIDER_FAILED)
