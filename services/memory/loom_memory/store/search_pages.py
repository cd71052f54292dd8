"""The table `search_pages`: what a search found beyond its first page, kept for minutes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, Table, own_write_reads
from loom_memory.domain.memory import Identity

TABLE: Final = Table.of(
    "search_pages",
    org="LowCardinality(String)",
    namespace="LowCardinality(String)",
    handle="String",
    caller="String",
    place="UInt32",
    hit_namespace="LowCardinality(String)",
    memory_key="String",
    user_id="String",
    session_id="String",
    score="Float64",
    similarity="Nullable(Float64)",
    is_low="Bool",
    as_of="Nullable(DateTime64(3, 'UTC'))",
    made_at="DateTime64(3, 'UTC')",
    expires_at="DateTime64(3, 'UTC')",
)

_PAGE: Final = """SELECT place, hit_namespace, memory_key, user_id, session_id, score, similarity, is_low, as_of
FROM search_pages
WHERE org = {org:String} AND namespace = {namespace:String} AND handle = {handle:String}
    AND caller = {caller:String} AND place >= {place:UInt32} AND expires_at > {now:DateTime64(3, 'UTC')}
ORDER BY place LIMIT {limit:UInt32}"""


@dataclass(frozen=True, slots=True)
class KeptHit:
    """One hit that a search found, by its place in the whole order, from 0; `as_of` is None for the present."""

    place: int
    namespace: str
    identity: Identity
    score: float
    similarity: float | None
    low: bool
    as_of: datetime | None = None


class SearchPageRepository:
    """Owns the table `search_pages`."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = own_write_reads(ch)

    async def insert(
        self, scope: Scope, handle: str, caller: str, hits: Sequence[KeptHit], made_at: datetime, expires_at: datetime
    ) -> None:
        """Keeps hits under a handle, for one caller."""
        rows = [
            (
                scope.org,
                scope.namespace,
                handle,
                caller,
                hit.place,
                hit.namespace,
                *hit.identity,
                hit.score,
                hit.similarity,
                hit.low,
                hit.as_of,
                made_at,
                expires_at,
            )
            for hit in hits
        ]
        await self._ch.insert(TABLE, rows)

    async def page(
        self, scope: Scope, handle: str, caller: str, place: int, now: datetime, limit: int
    ) -> list[KeptHit]:
        """Returns hits from a place on, in order; none where the handle is another's or has passed its time."""
        parameters = {
            "org": scope.org,
            "namespace": scope.namespace,
            "handle": handle,
            "caller": caller,
            "place": place,
            "now": now,
            "limit": limit,
        }
        rows = await self._ch.query(_PAGE, parameters, settings=self._reads)
        return [KeptHit(row[0], row[1], Identity(*row[2:5]), row[5], row[6], bool(row[7]), row[8]) for row in rows]
