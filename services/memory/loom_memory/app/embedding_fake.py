"""An embedder without a model, for tests: words are directions, and words of one concept are the same direction."""

import asyncio
import hashlib
import math
from collections.abc import Mapping, Sequence

import regex

from loom_common.errors import LoomError, ProviderFailed
from loom_memory.app.embedding import Chunk, EmbeddedText, ServedModel

_WORD = regex.compile(r"\p{Han}|[\p{L}\p{N}]+")


class FakeEmbedding:
    """Deterministic vectors whose cosine is the share of common words, or of words of a common concept.

    Attributes:
        concepts: Word to concept; two texts without a word in common are near where their concepts meet.
        failure: Raised by every call while set.
        refusal: Raised by every call that embeds while set; the model is known all the same.
        poison: Texts that hold one of these words cannot be embedded.
        gate: Calls wait for it; set at first.
        texts: Number of texts embedded so far.
        queries: Number of queries embedded so far.
    """

    def __init__(
        self, concepts: Mapping[str, str] | None = None, *, dim: int = 64, window_words: int = 64, model: str = "fake"
    ) -> None:
        self.concepts = dict(concepts or {})
        self.failure: LoomError | None = None
        self.refusal: LoomError | None = None
        self.poison: set[str] = set()
        self.gate = asyncio.Event()
        self.gate.set()
        self.texts = 0
        self.queries = 0
        self._served = ServedModel(name=model, dim=dim, fake=True, noise_floor=0.2)
        self._window_words = window_words

    async def served_model(self) -> ServedModel:
        """See `EmbeddingPort.served_model`."""
        await self._pass()
        return self._served

    async def ping(self) -> None:
        """See `EmbeddingPort.ping`."""
        await self._pass()

    async def embed_query(self, text: str) -> Sequence[float]:
        """See `EmbeddingPort.embed_query`."""
        await self._pass_embedding()
        self.queries += 1
        return self._vector(text)

    async def embed_many(self, texts: Sequence[str]) -> list[EmbeddedText]:
        """See `EmbeddingPort.embed_many`."""
        await self._pass_embedding()
        self.texts += len(texts)
        return [self._embedded(text) for text in texts]

    async def _pass(self) -> None:
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure

    async def _pass_embedding(self) -> None:
        await self._pass()
        if self.refusal is not None:
            raise self.refusal

    def _embedded(self, text: str) -> EmbeddedText:
        if self.poison.intersection(_WORD.findall(text)):
            return ProviderFailed("The text could not be embedded.")
        return self._chunks(text)

    def _chunks(self, text: str) -> list[Chunk]:
        words = list(_WORD.finditer(text))
        step = self._window_words // 2
        chunks = []
        for first in range(0, max(len(words) - step, 1), step):
            window = words[first : first + self._window_words]
            start = window[0].start() if first and window else 0
            is_last = first + self._window_words >= len(words)
            end = len(text) if is_last else window[-1].end()
            chunks.append(Chunk(start, end, self._vector(text[start:end])))
            if is_last:
                break
        return chunks

    def _vector(self, text: str) -> list[float]:
        vector = [0.0] * self._served.dim
        for word in _WORD.findall(text.casefold()):
            digest = hashlib.blake2b(self.concepts.get(word, word).encode(), digest_size=8).digest()
            place = int.from_bytes(digest, "little")
            vector[place % self._served.dim] += 1.0 if place & (1 << 40) else -1.0
        length = math.sqrt(sum(value * value for value in vector))
        if not length:
            vector[0] = length = 1.0
        return [value / length for value in vector]
