"""Measures a model with pairs of texts, in batches small enough that callers hardly notice."""

import asyncio
from collections.abc import Sequence
from typing import Final

from loom_embedding.app.corpora import built_in_corpora
from loom_embedding.domain.calibration import (
    Corpora,
    Pair,
    Quantiles,
    cosines_of,
    own_quantiles,
    quantiles_of,
    texts_of,
)
from loom_embedding.domain.embedder import Embedder, Vector

# Source: measured 2026-11-30: eight short texts take MiniLM some 100 ms of two busy cores, and the median query beside
# the whole probe 12 ms instead of 8. A provider is asked some forty times.
_BATCH_TEXTS: Final = 8


class Probe:
    """Embeds pairs on the path of stored texts, past every cache, and reads their cosines."""

    def __init__(self, embedder: Embedder, corpora: Corpora | None = None) -> None:
        """Takes the embedder.

        Args:
            embedder: The served model.
            corpora: Pairs to measure with; this build's by default.
        """
        self._embedder = embedder
        self._corpora = corpora

    async def cluster(self) -> Quantiles:
        """Returns the quantiles of the model, from the built-in pairs.

        Raises:
            LoomError: The model did not answer.
        """
        corpora = self._corpora or built_in_corpora()
        texts = texts_of(corpora.paraphrases, corpora.questions, corpora.distractors)
        vectors = await self._embed(texts, pausing=True)
        return quantiles_of(
            cosines_of(corpora.paraphrases, vectors),
            cosines_of(corpora.questions, vectors),
            cosines_of(corpora.distractors, vectors),
        )

    async def namespace(self, similar: Sequence[Pair], distractors: Sequence[Pair], cluster: Quantiles) -> Quantiles:
        """Returns the quantiles of a namespace, from its own pairs.

        Raises:
            LoomError: The model did not answer.
        """
        vectors = await self._embed(texts_of(similar, distractors))
        return own_quantiles(cosines_of(similar, vectors), cosines_of(distractors, vectors), cluster)

    async def _embed(self, texts: Sequence[str], *, pausing: bool = False) -> dict[str, Vector]:
        """Returns the vector of each text; `pausing` leaves as much time to others as it takes itself."""
        loop = asyncio.get_running_loop()
        vectors: dict[str, Vector] = {}
        for first in range(0, len(texts), _BATCH_TEXTS):
            batch = texts[first : first + _BATCH_TEXTS]
            began_s = loop.time()
            vectors.update(zip(batch, await self._embedder.embed_many(batch), strict=True))
            if pausing:
                await asyncio.sleep(loop.time() - began_s)
        return vectors
