"""The fake embedder: hashed character trigrams. It finds shared letters, not shared meaning."""

import asyncio
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from loom_common import call
from loom_common.usage import Usage
from loom_embedding.domain.embedder import FAKE, Outcome, ServedModel, Span, Vector
from loom_embedding.domain.vectors import unit_vector

# Words are cut so that every token has a bounded length, as a real model's have.
_TOKEN: Final = re.compile(r"\w{1,16}|[^\w\s]")

WINDOW_TOKENS: Final = 256
"""Source: as MiniLM's, so that the same texts are split."""

# Source: measured 2026-11-30: unrelated English sentences lie between -0.03 and 0.28 at 384 dimensions.
_NOISE_FLOOR: Final = 0.30


def fake_model(name: str, dim: int) -> ServedModel:
    """Returns what callers must know of the fake model `name`."""
    return ServedModel(name, dim, FAKE, WINDOW_TOKENS, special_tokens=0, noise_floor=_NOISE_FLOOR)


class FakeTokens:
    """Words and punctuation marks, for want of a model's tokens."""

    def spans(self, text: str) -> list[Span]:
        """See `Tokens.spans`."""
        return [Span(*match.span()) for match in _TOKEN.finditer(text)]


class FakeEmbedder:
    """Embeds by hashing every three characters in a row. Deterministic on every machine."""

    def __init__(self, name: str, dim: int) -> None:
        self.model_name = name
        self.dim = dim
        self._tokens = FakeTokens()

    async def embed(self, text: str) -> Vector:
        """See `Embedder.embed`."""
        self._count([text])
        return trigram_vector(text, self.dim)

    async def embed_many(self, texts: Sequence[str]) -> list[Vector]:
        """See `Embedder.embed_many`."""
        self._count(texts)
        return await asyncio.to_thread(lambda: [trigram_vector(text, self.dim) for text in texts])

    async def embed_each(self, texts: Sequence[str]) -> list[Outcome]:
        """See `Embedder.embed_each`."""
        return [*await self.embed_many(texts)]

    def _count(self, texts: Sequence[str]) -> None:
        tokens = sum(len(self._tokens.spans(text)) for text in texts)
        call.current().usage.merge(Usage(embedding_tokens=tokens, model=self.model_name, model_tokens=tokens))


def trigram_vector(text: str, dim: int) -> Vector:
    """Returns the vector of `text`: each trigram adds or takes one at a place that its hash names.

    Case and runs of white space do not matter. Shapes: float32 [dim], of unit length.
    """
    padded = f"  {' '.join(text.casefold().split())} "
    counts = Counter(padded[at : at + 3] for at in range(len(padded) - 2))
    sums = np.zeros(dim, dtype=np.float64)
    for trigram, count in counts.items():
        hashed = zlib.crc32(trigram.encode("utf-8", "surrogatepass"))
        sums[hashed % dim] += count if hashed >> 31 else -count
    if not sums.any():  # trigrams that cancel each other out
        sums[zlib.crc32(padded.encode("utf-8", "surrogatepass")) % dim] = 1.0
    return unit_vector(sums, dim)
