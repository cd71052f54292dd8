"""Answers that were paid for once, kept for a week and served again to the same organisation.

Nothing here fails a call: what cannot be read is asked for, and what cannot be kept is asked for again some day. An
erasure does fail, since whoever asks for one must know.

An answer that quotes an erased memory must not be kept after the erasure, although it may have been asked for before.
So an erasure first notes what is erased, where every replica reads it, and then removes rows; and a row is written only
where nothing of it was noted since it was asked for, and is looked at once more after it was written. Whichever comes
first, the other one sees it. Inside one process a lock keeps the two apart, so that no row is there even for a moment.

Where no other process can write the database, the answers in use are held in memory too.
"""

import asyncio
import contextvars
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, Protocol, TypeAlias

import structlog

from loom_common import call, telemetry
from loom_common.clickhouse import tagged
from loom_common.clock import Clock, MonotonicVersions
from loom_common.errors import LoomError
from loom_llm.app.recent_answers import RecentAnswers
from loom_llm.domain.cache_key import CacheUse, cache_key, keepable, key_mark, tag_mark
from loom_llm.domain.client import LLMClient
from loom_llm.domain.messages import DEFAULT_MAX_TOKENS, ChatRequest, Delta, LLMResult, ResponseFormat
from loom_llm.domain.policy import TrafficPolicies
from loom_llm.store.answers import Found, KeptAnswer, Place

TTL: Final = timedelta(days=7)

# Source: chosen. A read takes milliseconds; one that takes longer than this costs more than it could save.
_READ_TIMEOUT_S: Final = 0.25
# After a failure the table is left alone for this long, so that an absent database costs one call and not all.
_PAUSE_S: Final = 5.0
# Source: chosen. Answers that wait to be written; a megabyte each at most.
_MOST_WAITING: Final = 64
_CLOSE_S: Final = 2.0
# Source: chosen. Answers in memory; 16 MB at most where each is as long as may be.
_MOST_RECENT: Final = 256
# Source: chosen; how far apart the clocks of replicas may be. An answer asked for so soon after an erasure is not kept.
_SKEW: Final = timedelta(minutes=1)

_CACHE: Final = "llm_answers"

_log = structlog.get_logger(__name__)


class AnswerTable(Protocol):
    """The tables behind the cache."""

    async def read(self, place: Place, now: datetime, timeout_s: float) -> Found | None:
        """Returns the answer that is kept at a place and not expired, or None."""
        ...

    async def keep(self, answer: KeptAnswer) -> None:
        """Keeps one answer."""
        ...

    async def forget(self, place: Place) -> None:
        """Removes what is kept at one place, and returns once it is gone."""
        ...

    async def erase(self, org: str, namespace: str, keys: Sequence[str], tags: Sequence[str]) -> int:
        """Removes the answers that any of the keys or tags is on, and returns how many once they are gone."""
        ...

    async def mark_erased(self, org: str, namespace: str, marks: Sequence[str], now: datetime) -> None:
        """Notes what is erased."""
        ...

    async def erased(self, org: str, since: datetime) -> set[tuple[str, str]]:
        """Returns namespace and mark of what was erased since."""
        ...


Ask: TypeAlias = Callable[[], Awaitable[LLMResult]]
"""Asks the model."""


class LeaderFailed(Exception):
    """The call that asked first got no answer that others may have; whoever waited for it asks for itself."""


class AnswerCache:
    """Puts the cache before models. A `Caching`.

    Args:
        table: Where answers are kept.
        policies: Says who uses it where a request does not.
        clock: Time.
        alone: Whether no other process can write the table, so that what is erased is erased here.
    """

    def __init__(self, table: AnswerTable, policies: TrafficPolicies, clock: Clock, *, alone: bool = False) -> None:
        self._table = table
        self._policies = policies
        self._clock = clock
        self._versions = MonotonicVersions(clock)
        self._on_the_way: dict[Place, asyncio.Future[LLMResult]] = {}
        self._writing: set[asyncio.Task[None]] = set()
        self._apart = asyncio.Lock()
        self._recent = RecentAnswers(_MOST_RECENT if alone else 0)
        self._paused_until = 0.0

    def over(self, client: LLMClient, use: CacheUse) -> LLMClient:
        """Returns a client that answers from the cache where it can; for the running call alone.

        It is `client` itself where the cache is not to be used: it is switched off for the call, or the call is for no
        organisation.
        """
        enabled = self._policies.caches(use.traffic_class) if use.enabled is None else use.enabled
        attribution = call.current().attribution
        if not enabled or attribution is None or not attribution.org:
            return client
        namespaces = use.namespaces or ((attribution.namespace,) if attribution.namespace else ())
        return CachedClient(client, self, attribution.org, replace(use, namespaces=namespaces))

    async def erase(self, org: str, namespace: str, keys: Sequence[str], tags: Sequence[str]) -> int:
        """Removes the answers whose prompts carried a memory, or that carry a tag; returns how many.

        Raises:
            BackendUnavailable: The database cannot be reached; what was removed until then is unknown.
        """
        marks = [*map(key_mark, keys), *map(tag_mark, tags)]
        async with self._apart:
            self._recent.forget(org)
            try:
                await self._table.mark_erased(org, namespace, marks, self._clock.now())
                return await self._table.erase(org, namespace, keys, tags)
            finally:
                self._recent.forget(org)  # again: a read may have brought one back meanwhile

    async def aclose(self) -> None:
        """Writes what waits, for as long as a stop may take."""
        if self._writing:
            _, late = await asyncio.wait(self._writing, timeout=_CLOSE_S)
            for task in late:
                task.cancel()

    async def answer(self, place: Place, use: CacheUse, ask: Ask) -> LLMResult:
        """Returns the kept answer, that of the same prompt on its way, or a new one, which is then kept."""
        if (found := await self._read(place)) is not None:
            return found
        if (leader := self._on_the_way.get(place)) is not None:
            return await self._follow(leader) or await ask()
        return await self._lead(place, use, ask)

    async def _follow(self, leader: "asyncio.Future[LLMResult]") -> LLMResult | None:
        try:
            shared = await asyncio.shield(leader)
        except LeaderFailed:
            return None
        telemetry.add("loom.cache.lookups", cache=_CACHE, outcome="shared")
        return replace(shared, from_cache=True)

    async def _lead(self, place: Place, use: CacheUse, ask: Ask) -> LLMResult:
        own: asyncio.Future[LLMResult] = asyncio.get_running_loop().create_future()
        own.add_done_callback(_read_by_nobody)
        self._on_the_way[place] = own
        asked_at = self._clock.now()
        try:
            result = await ask()
        except BaseException:
            self._on_the_way.pop(place, None)
            own.set_exception(LeaderFailed())
            raise
        if not keepable(result, place.model):
            own.set_exception(LeaderFailed())
            outcome = "left_out"
        else:
            own.set_result(result)
            if len(self._writing) < _MOST_WAITING and not self._paused():
                self._write_soon(place, use, result, asked_at)
                return result
            outcome = "dropped"
        self._on_the_way.pop(place, None)
        telemetry.add("loom.cache.writes", cache=_CACHE, outcome=outcome)
        return result

    async def _read(self, place: Place) -> LLMResult | None:
        if (recent := self._recent.get(place, self._clock.now())) is not None:
            telemetry.add("loom.cache.lookups", cache=_CACHE, outcome="hit")
            return recent
        if self._paused():
            return None
        before = self._recent.forgettings
        try:
            async with asyncio.timeout(_READ_TIMEOUT_S):
                found = await self._table.read(place, self._clock.now(), _READ_TIMEOUT_S)
        except (LoomError, TimeoutError) as error:
            self._pause("read", error)
            telemetry.add("loom.cache.lookups", cache=_CACHE, outcome="failed")
            return None
        telemetry.add("loom.cache.lookups", cache=_CACHE, outcome="miss" if found is None else "hit")
        if found is None:
            return None
        if self._recent.forgettings == before:
            self._recent.put(place, found)
        return found.result

    def _write_soon(self, place: Place, use: CacheUse, result: LLMResult, asked_at: datetime) -> None:
        now = self._clock.now()
        row = KeptAnswer(
            place, result, use.namespaces, use.window_keys, use.tags, now, now + TTL, self._versions.next()
        )
        # An empty context: the task outlives the call.
        task = asyncio.create_task(self._write(row, asked_at), context=contextvars.Context())
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _write(self, row: KeptAnswer, asked_at: datetime) -> None:
        try:
            with tagged("llm.cache"):
                outcome = await self._keep(row, asked_at)
        except LoomError as error:
            self._pause("write", error)
            outcome = "failed"
        finally:
            # Only now: until the row can be read, the same prompt takes this answer.
            self._on_the_way.pop(row.place, None)
        telemetry.add("loom.cache.writes", cache=_CACHE, outcome=outcome)

    async def _keep(self, row: KeptAnswer, asked_at: datetime) -> str:
        marks = {*map(key_mark, row.window_keys), *map(tag_mark, row.tags)}
        touched = {(namespace, mark) for namespace in row.namespaces for mark in marks}
        async with self._apart:
            if touched and touched & await self._table.erased(row.place.org, asked_at - _SKEW):
                return "erased"
            await self._table.keep(row)
            # Another replica may have erased in between; then its removal may have come before the row.
            if touched and touched & await self._table.erased(row.place.org, asked_at - _SKEW):
                await self._table.forget(row.place)
                return "erased"
            self._recent.put(row.place, Found(replace(row.result, from_cache=True), row.expires_at))
        return "stored"

    def _paused(self) -> bool:
        return self._clock.monotonic_s() < self._paused_until

    def _pause(self, what: str, error: Exception) -> None:
        self._paused_until = self._clock.monotonic_s() + _PAUSE_S
        reason = error.reason.value if isinstance(error, LoomError) else "TIMEOUT"
        _log.warning("answer_cache_failed", what=what, reason=reason)


class CachedClient:
    """A model behind the cache, for one call.

    Args:
        inner: The model.
        cache: The cache.
        org: Organisation that the call serves.
        use: How the cache is used.
    """

    def __init__(self, inner: LLMClient, cache: AnswerCache, org: str, use: CacheUse) -> None:
        self._inner = inner
        self._cache = cache
        self._org = org
        self._use = use

    @property
    def provider(self) -> str:
        """See `LLMClient.provider`."""
        return self._inner.provider

    @property
    def model(self) -> str:
        """See `LLMClient.model`."""
        return self._inner.model

    async def complete(
        self,
        system: str,
        user: str,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        response_format: ResponseFormat | None = None,
    ) -> LLMResult:
        """See `LLMClient.complete`."""
        key = cache_key(self._org, self.model, system, user, max_tokens, response_format)

        async def ask() -> LLMResult:
            return await self._inner.complete(system, user, max_tokens, response_format)

        return await self._cache.answer(Place(self._org, self.model, key), self._use, ask)

    def chat(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """See `LLMClient.chat`: conversations are never taken from the cache."""
        return self._inner.chat(request)


def _read_by_nobody(future: "asyncio.Future[LLMResult]") -> None:
    # Often nobody waits for it; asyncio would log a failure that nobody looked at.
    if not future.cancelled():
        future.exception()
