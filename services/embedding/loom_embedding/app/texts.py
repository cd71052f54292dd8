"""Embeds texts that are stored, as they are; a long one in chunks that leave nothing out."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from loom_common import telemetry
from loom_common.errors import LoomError, PayloadTooLarge, Reason
from loom_common.model_calls.gate import OPEN_GATE, Gate
from loom_embedding.app.shared_cache import NoSharedVectors, Purpose, SharedVectors, request_org
from loom_embedding.domain.chunking import chunk_spans, shortened_words
from loom_embedding.domain.embedder import Embedder, Outcome, ServedModel, Span, Tokens, Vector

MAX_VECTOR_BYTES: Final = 7 * 1024 * 1024
"""Most bytes of vectors in one answer. Source: a gRPC message may have 8 MiB; the rest is for offsets and framing."""

MAX_CALL_TOKENS: Final = 70_000
"""Most tokens of the texts of one call, some 350,000 letters of English.

Source: bench/embedding.py, 2026-11-30: two cores embed 5,000 tokens a second, so that this takes 14 s, and other work
may take three quarters of the processor before the minute of a call is over. Any one memory has fewer: each token of
its 64 KiB has a byte at least.
"""

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

    def __init__(
        self,
        embedder: Embedder,
        served: ServedModel,
        tokens: Tokens,
        shared: SharedVectors | None = None,
        *,
        gate: Gate = OPEN_GATE,
    ) -> None:
        self._gate = gate
        self._embedder = embedder
        self._served = served
        self._tokens = tokens
        self._shared = shared or NoSharedVectors()

    async def embed(self, texts: Sequence[str]) -> list[Embedded]:
        """Returns one result per text, in order. A text that cannot be embedded does not lose the others.

        Raises:
            Overloaded: Too much work waits already.
            ProviderFailed: The provider failed for every text.
            PayloadTooLarge: The texts have more tokens than one call may take, or more chunks than an answer can carry.
            LoomError: The gate, or the gateway before the provider, refused the call.
        """
        await self._gate.require()
        if sum(map(len, texts)) <= _INLINE_CHARS:
            texts, spans = self._split(texts)
        else:
            texts, spans = await asyncio.to_thread(self._split, texts)
        count = sum(map(len, spans))
        if count * self._served.dim * 4 > MAX_VECTOR_BYTES:
            raise PayloadTooLarge(
                "The texts have more chunks than one answer can carry. Send fewer texts at a time.",
                detail={"chunks": count, "max_chunks": MAX_VECTOR_BYTES // (self._served.dim * 4)},
            )
        pieces = [text[span.start : span.end] for text, own in zip(texts, spans, strict=True) for span in own]
        outcomes = iter(await self._outcomes(pieces))
        results = [_embedded(own, [next(outcomes) for _ in own]) for own in spans]
        for outcome, count in Counter(result.error for result in results).items():
            telemetry.add("loom.embedding.texts", count, model=self._served.name, outcome=outcome or "ok")
        return results

    async def _outcomes(self, pieces: Sequence[str]) -> list[Outcome]:
        org = request_org()
        held = await self._shared.get(org, Purpose.STORED, pieces)
        missing = [piece for piece in pieces if piece not in held]
        made = await self._embedder.embed_each(missing) if missing else []
        vectors = {piece: each for piece, each in zip(missing, made, strict=True) if not isinstance(each, LoomError)}
        self._shared.put(org, Purpose.STORED, vectors)
        embedded = iter(made)
        return [held[piece] if piece in held else next(embedded) for piece in pieces]

    def _split(self, texts: Sequence[str]) -> tuple[Sequence[str], list[list[Span]]]:
        """Returns the texts as they are read, and the chunks of each.

        Raises:
            PayloadTooLarge: They have more tokens than one call may take.
        """
        served = self._served
        if served.longest_word is not None:
            texts = [shortened_words(text, served.longest_word) for text in texts]
        found = [self._tokens.spans(text) for text in texts]
        tokens = sum(map(len, found))
        if tokens > MAX_CALL_TOKENS:
            raise PayloadTooLarge(
                f"The texts have {tokens} tokens together, and one call takes {MAX_CALL_TOKENS}.",
                detail={"tokens": tokens, "max_tokens": MAX_CALL_TOKENS},
            )
        spans = [
            chunk_spans(text, self._tokens, served.budget_tokens, found=own)
            for text, own in zip(texts, found, strict=True)
        ]
        return texts, spans


def _embedded(spans: Sequence[Span], outcomes: Sequence[Outcome]) -> Embedded:
    chunks = []
    for span, outcome in zip(spans, outcomes, strict=True):
        if isinstance(outcome, LoomError):
            # Half a text's chunks would leave the other half out in silence.
            return Embedded(error=outcome.reason)
        chunks.append(Chunk(span, outcome))
    return Embedded(chunks=tuple(chunks))
