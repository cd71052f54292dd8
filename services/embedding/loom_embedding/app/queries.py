"""Embeds what somebody searches for: white space folded, cached per organisation, within a bound."""

import asyncio
import hashlib
from collections.abc import Callable
from typing import Final

from cachetools import TTLCache

from loom_common import call, telemetry
from loom_common.attribution import Kind
from loom_common.errors import EmbedTimeout, InvalidArgument
from loom_embedding.app.flights import SingleFlight
from loom_embedding.domain.chunking import chunk_spans
from loom_embedding.domain.embedder import Embedder, ServedModel, Tokens, Vector
from loom_embedding.domain.vectors import mean_vector

DEFAULT_BOUND_MS: Final = 2_500
DEFAULT_RETRIES: Final = 1
# Source: chosen. The longest query would be tens of chunks, which no bound of an attempt has time for on a few cores;
# what somebody searches for is said well before the fourth chunk ends.
MAX_QUERY_CHUNKS: Final = 4


class QueryCache:
    """Vectors of queries that this process embedded lately, by (organisation, model, text).

    One organisation is never served another's vector: a fast answer would tell it what another one searched for.
    """

    def __init__(self, size: int, ttl_s: float, timer: Callable[[], float]) -> None:
        self._held: TTLCache[bytes, Vector] = TTLCache(maxsize=size, ttl=ttl_s, timer=timer)

    @staticmethod
    def key(org: str, model: str, text: str) -> bytes:
        """Returns the key; the text itself is not kept."""
        parts = (part.encode("utf-8", "surrogatepass") for part in (org, model, text))
        return hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).digest()

    def get(self, key: bytes) -> Vector | None:
        """Returns the vector, or None where it is not held any more."""
        return self._held.get(key)

    def put(self, key: bytes, vector: Vector) -> None:
        """Keeps the vector, and drops the one that was used least lately where there is no room."""
        if self._held.maxsize:
            self._held[key] = vector


class QueryEmbedding:
    """Embeds queries."""

    def __init__(self, embedder: Embedder, served: ServedModel, tokens: Tokens, cache: QueryCache) -> None:
        self._embedder = embedder
        self._served = served
        self._tokens = tokens
        self._cache = cache
        self._flights: SingleFlight[bytes, Vector] = SingleFlight()

    async def embed(self, text: str, *, bound_ms: int = DEFAULT_BOUND_MS, retries: int = DEFAULT_RETRIES) -> Vector:
        """Returns the vector of a query; of one longer than the model's window, the mean of its first chunks.

        Args:
            text: The query.
            bound_ms: Time of one attempt.
            retries: Further attempts after one that took too long.

        Raises:
            EmbedTimeout: No attempt answered within its bound.
            InvalidArgument: The query is nothing but white space.
        """
        folded = " ".join(text.split())
        if not folded:
            raise InvalidArgument.of("text", "must hold more than white space")
        org = _org()
        key = QueryCache.key(org, self._served.name, folded) if org else None
        held = self._cache.get(key) if key is not None else None
        telemetry.add("loom.cache.lookups", cache="query_vectors", outcome="miss" if held is None else "hit")
        if held is not None:
            return held
        for _ in range(1 + retries):
            try:
                return await self._attempt(key, folded, bound_ms / 1000)
            except TimeoutError:
                continue
        raise EmbedTimeout(
            f"The query was not embedded within {bound_ms} ms in {1 + retries} attempts. Send it again.",
            detail={"bound_ms": bound_ms, "attempts": 1 + retries},
        )

    async def _attempt(self, key: bytes | None, text: str, bound_s: float) -> Vector:
        if key is None:
            async with asyncio.timeout(bound_s):
                return await self._vector(text)
        return await self._flights.run(key, lambda: self._vector_to_keep(key, text), bound_s)

    async def _vector_to_keep(self, key: bytes, text: str) -> Vector:
        vector = await self._vector(text)
        self._cache.put(key, vector)
        return vector

    async def _vector(self, text: str) -> Vector:
        chunks = chunk_spans(text, self._tokens, self._served.budget_tokens)[:MAX_QUERY_CHUNKS]
        if len(chunks) == 1:
            return await self._embedder.embed(text)
        vectors = await asyncio.gather(*(self._embedder.embed(text[chunk.start : chunk.end]) for chunk in chunks))
        return mean_vector(vectors, self._served.dim)


def _org() -> str:
    """Returns the organisation that a request is for; empty for jobs and for the deployment's own calls.

    A job's attribution names the row it works on, which is no scope for what it embeds next: it is not cached.
    """
    attribution = call.current().attribution
    return attribution.org if attribution is not None and attribution.kind is Kind.REQUEST else ""
