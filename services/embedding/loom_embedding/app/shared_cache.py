"""Vectors that replicas share through the table `embedding_cache`, behind the cache of the process.

A key is a digest over the organisation, the model, whether it was searched for or stored, and the text. One
organisation never meets another's: a fast answer would tell it that another one embedded the same text. Nothing here
fails a call: what cannot be read is embedded, and what cannot be written is embedded again some day.
"""

import asyncio
import contextvars
import hashlib
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Protocol

import structlog

from loom_common import call, telemetry
from loom_common.attribution import Kind
from loom_common.clickhouse import tagged
from loom_common.clock import Clock, MonotonicVersions
from loom_common.errors import LoomError
from loom_embedding.domain.embedder import Vector
from loom_embedding.store.vectors import CachedVector

# Source: chosen. A read takes milliseconds; one that takes longer than this costs more than it could save.
_READ_TIMEOUT_S: Final = 0.25
# After a failure the table is not read for this long, so that an absent database costs one call and not all; what is
# written costs no call anything.
_PAUSE_S: Final = 5.0
# Source: chosen; some 12 MB of vectors of width 1,536.
_MAX_WAITING: Final = 2_000
_BATCH: Final = 256
_CLOSE_S: Final = 2.0

_log = structlog.get_logger(__name__)


class Purpose(StrEnum):
    """Which path a text takes. The paths never serve each other: they fold texts in different ways."""

    QUERY = "query"
    STORED = "stored"


class SharedVectors(Protocol):
    """A cache that outlives the process. Its methods never raise but for cancellation."""

    async def get(self, org: str, purpose: Purpose, texts: Sequence[str]) -> Mapping[str, Vector]:
        """Returns the vectors that are held, by text. Shapes: float32 [dim], of unit length."""
        ...

    def put(self, org: str, purpose: Purpose, vectors: Mapping[str, Vector]) -> None:
        """Keeps vectors soon; returns at once."""
        ...


class NoSharedVectors:
    """Shares nothing; for a model that embeds a text faster than a table is read."""

    async def get(self, org: str, purpose: Purpose, texts: Sequence[str]) -> Mapping[str, Vector]:
        """See `SharedVectors.get`."""
        return {}

    def put(self, org: str, purpose: Purpose, vectors: Mapping[str, Vector]) -> None:
        """See `SharedVectors.put`."""


class VectorTable(Protocol):
    """The table behind the cache."""

    async def read(self, org: str, keys: Sequence[str], now: datetime, timeout_s: float) -> Mapping[str, Vector]:
        """Returns the vectors that are held, by key."""
        ...

    async def write(self, rows: Sequence[CachedVector]) -> None:
        """Keeps vectors."""
        ...


class SharedCache:
    """Reads at once, writes in the background: in batches, and no more than a bounded number waits."""

    def __init__(self, table: VectorTable, model: str, *, max_chars: int, ttl_s: float, clock: Clock) -> None:
        """Takes the table.

        Args:
            table: Where vectors are kept.
            model: The served model, which is part of every key.
            max_chars: Longest text that is looked up or kept.
            ttl_s: How long a vector is kept.
            clock: Time.
        """
        self._table = table
        self._model = model
        self._max_chars = max_chars
        self._ttl = timedelta(seconds=ttl_s)
        self._clock = clock
        self._versions = MonotonicVersions(clock)
        self._waiting: deque[CachedVector] = deque()
        self._writing: asyncio.Task[None] | None = None
        self._paused_until = 0.0

    def key(self, org: str, purpose: Purpose, text: str) -> str:
        """Returns the key; the text itself is not kept."""
        parts = (part.encode("utf-8", "surrogatepass") for part in (org, self._model, purpose.value, text))
        return hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).hexdigest()

    async def get(self, org: str, purpose: Purpose, texts: Sequence[str]) -> Mapping[str, Vector]:
        """See `SharedVectors.get`."""
        keys = {self.key(org, purpose, text): text for text in texts if len(text) <= self._max_chars}
        if not org or not keys or self._clock.monotonic_s() < self._paused_until:
            return {}
        try:
            async with asyncio.timeout(_READ_TIMEOUT_S):
                held = await self._table.read(org, list(keys), self._clock.now(), _READ_TIMEOUT_S)
        except (LoomError, TimeoutError) as error:
            self._pause("read", error)
            telemetry.add("loom.cache.lookups", len(keys), cache="shared_vectors", outcome="failed")
            return {}
        telemetry.add("loom.cache.lookups", len(held), cache="shared_vectors", outcome="hit")
        telemetry.add("loom.cache.lookups", len(keys) - len(held), cache="shared_vectors", outcome="miss")
        return {keys[key]: vector for key, vector in held.items()}

    def put(self, org: str, purpose: Purpose, vectors: Mapping[str, Vector]) -> None:
        """See `SharedVectors.put`."""
        if not org:
            return
        expires_at = self._clock.now() + self._ttl
        for text, vector in vectors.items():
            if len(text) > self._max_chars:
                continue
            if len(self._waiting) >= _MAX_WAITING:
                telemetry.add("loom.cache.writes", cache="shared_vectors", outcome="dropped")
                continue
            row = CachedVector(org, self.key(org, purpose, text), vector, expires_at, self._versions.next())
            self._waiting.append(row)
        if self._waiting and (self._writing is None or self._writing.done()):
            # An empty context: the task outlives the request that may have started it.
            self._writing = asyncio.create_task(self._write(), context=contextvars.Context())

    async def aclose(self) -> None:
        """Writes what waits, for as long as a stop may take."""
        if self._writing is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await self._writing

    async def _write(self) -> None:
        with tagged("embedding.cache"):
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
                try:
                    await self._table.write(batch)
                except LoomError as error:
                    self._pause("write", error)
                    outcome = "failed"
                else:
                    outcome = "stored"
                telemetry.add("loom.cache.writes", len(batch), cache="shared_vectors", outcome=outcome)

    def _pause(self, what: str, error: Exception) -> None:
        self._paused_until = self._clock.monotonic_s() + _PAUSE_S
        reason = error.reason.value if isinstance(error, LoomError) else "TIMEOUT"
        _log.warning("shared_cache_failed", what=what, reason=reason)


def request_org() -> str:
    """Returns the organisation that a request is for; empty for jobs and for the deployment's own calls.

    A job's attribution names the row it works on, which is no scope for what it embeds next: it is not cached.
    """
    attribution = call.current().attribution
    return attribution.org if attribution is not None and attribution.kind is Kind.REQUEST else ""
