"""The tables `llm_response_cache` and `llm_cache_erasures`: answers that were paid for, and what was erased lately."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from loom_common.clickhouse import ClickHouse, Table, own_write_reads
from loom_llm.domain.messages import LLMResult

TABLE: Final = Table.of(
    "llm_response_cache",
    org="LowCardinality(String)",
    model="LowCardinality(String)",
    cache_key="String",
    namespaces="Array(LowCardinality(String))",
    window_keys="Array(String)",
    tags="Array(String)",
    answer="String",
    provider="LowCardinality(String)",
    answered_by="LowCardinality(String)",
    stop_reason="LowCardinality(String)",
    input_tokens="UInt32",
    output_tokens="UInt32",
    cached_input_tokens="UInt32",
    cache_write_tokens="UInt32",
    created_at="DateTime64(3, 'UTC')",
    expires_at="DateTime64(3, 'UTC')",
    version="UInt64",
)

ERASURES: Final = Table.of(
    "llm_cache_erasures",
    org="LowCardinality(String)",
    namespace="LowCardinality(String)",
    mark="String",
    erased_at="DateTime64(3, 'UTC')",
)

# Without FINAL, which would read more; of one key the newest row counts.
_READ: Final = """SELECT answer, provider, answered_by, input_tokens, output_tokens, cached_input_tokens,
    cache_write_tokens, stop_reason, expires_at
FROM llm_response_cache
WHERE org = {org:String} AND model = {model:String} AND cache_key = {key:String}
    AND expires_at > {now:DateTime64(3, 'UTC')}
ORDER BY version DESC LIMIT 1"""

_TOUCHED: Final = """org = {org:String} AND has(namespaces, {namespace:String})
    AND (hasAny(window_keys, {keys:Array(String)}) OR hasAny(tags, {tags:Array(String)}))"""
_COUNT: Final = f"SELECT uniqExact(model, cache_key) FROM llm_response_cache WHERE {_TOUCHED}"  # noqa: S608 # constants
_ERASE: Final = f"ALTER TABLE llm_response_cache DELETE WHERE {_TOUCHED}"

_FORGET: Final = """ALTER TABLE llm_response_cache DELETE
WHERE org = {org:String} AND model = {model:String} AND cache_key = {key:String}"""

_ERASED: Final = """SELECT DISTINCT namespace, mark FROM llm_cache_erasures
WHERE org = {org:String} AND erased_at >= {since:DateTime64(3, 'UTC')} ORDER BY namespace, mark"""

# A row is gone when the statement returns, on every replica, and with it the text on disk.
_AT_ONCE: Final = {"mutations_sync": 2}
_POINT_READ: Final = {"max_threads": 1}


@dataclass(frozen=True, slots=True)
class Place:
    """Where an answer is kept."""

    org: str
    model: str
    key: str


@dataclass(frozen=True, slots=True)
class Found:
    """An answer that is kept, marked as from the cache."""

    result: LLMResult
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """One row to keep."""

    place: Place
    result: LLMResult
    namespaces: tuple[str, ...]
    """Namespaces whose memories the prompt carried."""
    window_keys: tuple[str, ...]
    tags: tuple[str, ...]
    created_at: datetime
    expires_at: datetime
    version: int


class AnswerRepository:
    """Owns both tables."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = own_write_reads(ch)

    async def read(self, place: Place, now: datetime, timeout_s: float) -> Found | None:
        """Returns the answer that is kept at a place and not expired, or None."""
        rows = await self._ch.query(
            _READ,
            {"org": place.org, "model": place.model, "key": place.key, "now": now},
            settings={**_POINT_READ, **self._reads},
            timeout_s=timeout_s,
        )
        row = rows.first()
        if row is None:
            return None
        text, provider, answered_by, put_in, put_out, cached, written, stop_reason, expires_at = row
        result = LLMResult(text, provider, answered_by, put_in, put_out, cached, written, True, stop_reason)
        return Found(result, expires_at)

    async def keep(self, answer: KeptAnswer) -> None:
        """Keeps one answer."""
        place, result = answer.place, answer.result
        row = (
            place.org, place.model, place.key, list(answer.namespaces), list(answer.window_keys), list(answer.tags),
            result.text, result.provider, result.model, result.stop_reason, result.input_tokens, result.output_tokens,
            result.cached_input_tokens, result.cache_write_tokens, answer.created_at, answer.expires_at, answer.version,
        )  # fmt: skip
        await self._ch.insert(TABLE, [row])

    async def forget(self, place: Place) -> None:
        """Removes what is kept at one place, and returns once it is gone."""
        await self._ch.command(_FORGET, {"org": place.org, "model": place.model, "key": place.key}, settings=_AT_ONCE)

    async def erase(self, org: str, namespace: str, keys: Sequence[str], tags: Sequence[str]) -> int:
        """Removes the answers that any of the keys or tags is on, and returns how many once they are gone."""
        touched = {"org": org, "namespace": namespace, "keys": list(keys), "tags": list(tags)}
        count = int((await self._ch.query(_COUNT, touched, settings=self._reads)).scalar())
        if count:
            await self._ch.command(_ERASE, touched, settings=_AT_ONCE)
        return count

    async def mark_erased(self, org: str, namespace: str, marks: Sequence[str], now: datetime) -> None:
        """Notes what is erased, so that an answer on its way is not kept."""
        await self._ch.insert(ERASURES, [(org, namespace, mark, now) for mark in marks])

    async def erased(self, org: str, since: datetime) -> set[tuple[str, str]]:
        """Returns namespace and mark of what was erased since."""
        rows = await self._ch.query(_ERASED, {"org": org, "since": since}, settings=self._reads)
        return {(namespace, mark) for namespace, mark in rows}
