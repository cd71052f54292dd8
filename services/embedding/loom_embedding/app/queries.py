"""Embeds what somebody searches for: white space folded, cached per organisation, within a bound."""

import asyncio
import hashlib
import time
from collections.abc import Callable
from typing import Final

from cachetools import TTLCache

from loom_common import call, telemetry
from loom_common.errors import EmbedTimeout, InvalidArgument, ProviderFailed
from loom_common.model_calls.gate import OPEN_GATE, Gate
from loom_common.orphans import Orphans
from loom_common.providers import BACKOFF_BASE_S, Sleep
from loom_common.together import all_of
from loom_embedding.app.flights import SingleFlight
from loom_embedding.app.shared_cache import NoSharedVectors, Purpose, SharedVectors, request_org
from loom_embedding.domain.chunking import chunk_spans
from loom_embedding.domain.embedder import Embedder, ServedModel, Tokens, Vector
from loom_embedding.domain.vectors import ProviderBusy, mean_vector

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

    def __init__(
        self,
        embedder: Embedder,
        served: ServedModel,
        tokens: Tokens,
        cache: QueryCache,
        *,
        shared: SharedVectors | None = None,
        sleep: Sleep = asyncio.sleep,
        timer: Callable[[], float] = time.monotonic,
        gate: Gate = OPEN_GATE,
        orphans: Orphans | None = None,
    ) -> None:
        """Takes what it embeds with.

        Args:
            embedder: The served model.
            served: What is known of it.
            tokens: Its tokens.
            cache: Vectors of queries that were embedded lately.
            shared: Vectors that other processes keep too.
            sleep: Waits between attempts.
            timer: Clock of attempts, in seconds.
            gate: What every call passes before the caches: an organisation that is switched off gets nothing from them.
            orphans: Records what a query spent that nobody waits for any more; None: nothing does.
        """
        self._gate = gate
        self._sleep = sleep
        self._timer = timer
        self._embedder = embedder
        self._served = served
        self._tokens = tokens
        self._cache = cache
        self._shared = shared or NoSharedVectors()
        self._flights: SingleFlight[tuple[bytes, tuple[str, ...]], Vector] = SingleFlight(
            orphans.left if orphans is not None else None
        )

    async def embed(self, text: str, *, bound_ms: int = DEFAULT_BOUND_MS, retries: int = DEFAULT_RETRIES) -> Vector:
        """Returns the vector of a query; of one longer than the model's window, the mean of its first chunks.

        Args:
            text: The query.
            bound_ms: Time of one attempt.
            retries: Further attempts after one that took too long, or failed in a way that may pass.

        Raises:
            EmbedTimeout: The last attempt did not answer within its bound.
            InvalidArgument: The query is nothing but white space.
            ProviderFailed: The provider failed, in a way that does not pass or in the last attempt.
            LoomError: The gate, or the gateway before the provider, refused the call.
        """
        await self._gate.require()
        folded = " ".join(text.split())
        if not folded:
            raise InvalidArgument.of("text", "must hold more than white space")
        org = request_org()
        key = QueryCache.key(org, self._served.name, folded) if org else None
        held = self._cache.get(key) if key is not None else None
        telemetry.add("loom.cache.lookups", cache="query_vectors", outcome="miss" if held is None else "hit")
        if held is not None:
            return held
        bound_s = bound_ms / 1000
        for attempt in range(1 + retries):
            begun_s = self._timer()
            try:
                return await self._attempt(org, key, folded, bound_s)
            except TimeoutError:
                continue
            except ProviderFailed as error:
                # The wait comes out of the attempt's own time, so that all of them together stay within theirs.
                wait_s = max(BACKOFF_BASE_S * 2.0**attempt, error.retry_after_s or 0.0)
                no_time = wait_s >= bound_s - (self._timer() - begun_s)
                if not isinstance(error, ProviderBusy) or attempt == retries or no_time:
                    raise _after(error, attempts=attempt + 1) from None
                await self._sleep(wait_s)
        raise EmbedTimeout(
            f"The query was not embedded within {bound_ms} ms in {1 + retries} attempts. Send it again.",
            detail={"bound_ms": bound_ms, "attempts": 1 + retries},
        )

    async def _attempt(self, org: str, key: bytes | None, text: str, bound_s: float) -> Vector:
        if key is None:
            async with asyncio.timeout(bound_s):
                return await self._vector(text)
        # Those for whom a gateway sees different callers do not share: each is billed and refused by itself.
        named = call.current().model_call
        flight = (key, named.key if named is not None else ())
        return await self._flights.run(flight, lambda: self._vector_to_keep(org, key, text), bound_s)

    async def _vector_to_keep(self, org: str, key: bytes, text: str) -> Vector:
        vector = (await self._shared.get(org, Purpose.QUERY, [text])).get(text)
        if vector is None:
            vector = await self._vector(text)
            self._shared.put(org, Purpose.QUERY, {text: vector})
        self._cache.put(key, vector)
        return vector

    async def _vector(self, text: str) -> Vector:
        chunks = chunk_spans(text, self._tokens, self._served.budget_tokens)[:MAX_QUERY_CHUNKS]
        if len(chunks) == 1:
            return await self._embedder.embed(text)
        vectors = await all_of(self._embedder.embed(text[chunk.start : chunk.end]) for chunk in chunks)
        return mean_vector(vectors, self._served.dim)


def _after(error: ProviderFailed, *, attempts: int) -> ProviderFailed:
    """Returns the failure of the last attempt, which knows of no other, as that of all of them."""
    if attempts == 1:
        return error
    return type(error)(
        f"{error.message.removesuffix('.')} in {attempts} attempts.",
        detail={**error.detail, "attempts": attempts},
        retry_after_s=error.retry_after_s,
    )
