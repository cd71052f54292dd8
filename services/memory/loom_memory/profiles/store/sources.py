"""Users whose memories have news for their profiles, and those memories."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from collections.abc import Collection
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, own_write_reads
from loom_memory.domain.memory import Identity
from loom_memory.domain.mining import CONSOLIDATED, Source
from loom_memory.store.columns import IDENTITY
from loom_memory.store.filters import IN_SCOPE, in_scope

# What was made of memories is no evidence beside them.
_PLAIN: Final = f"""{IN_SCOPE} AND user_id != '' AND tombstoned_at IS NULL
    AND (expires_at IS NULL OR expires_at > {{now:DateTime64(3, 'UTC')}})
    AND (invalid_at IS NULL OR invalid_at > {{now:DateTime64(3, 'UTC')}}) AND NOT has(tags, '{CONSOLIDATED}')"""
_USERS: Final = f"""SELECT user_id, max(version) AS newest FROM memory FINAL
WHERE {_PLAIN} AND NOT has({{held:Array(String)}}, user_id)
GROUP BY user_id HAVING newest > {{after:UInt64}} ORDER BY newest, user_id LIMIT {{limit:UInt32}}"""
_SOURCES: Final = f"""SELECT {IDENTITY}, value, speaker, coalesce(event_time, created_at) AS at, version, actor
FROM memory FINAL WHERE {_PLAIN} AND user_id = {{user_id:String}}
ORDER BY version DESC, {IDENTITY} LIMIT {{limit:UInt32}}"""


class FoldSourceRepository:
    """Reads memories for profiles; it writes nothing."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = own_write_reads(ch)

    async def users(
        self, scope: Scope, after: int, now: datetime, held: Collection[str], limit: int
    ) -> list[tuple[str, int]]:
        """Returns users with memories behind a version, each with the newest, oldest news first; none of `held`."""
        parameters = {**in_scope(scope), "after": after, "now": now, "held": sorted(held), "limit": limit}
        return [(row[0], row[1]) for row in await self._ch.query(_USERS, parameters, settings=self._reads)]

    async def sources(self, scope: Scope, user_id: str, now: datetime, limit: int) -> list[Source]:
        """Returns the newest memories of a user, oldest first."""
        parameters = {**in_scope(scope), "user_id": user_id, "now": now, "limit": limit}
        rows = await self._ch.query(_SOURCES, parameters, settings=self._reads)
        found = [Source(Identity(*row[:3]), row[3], row[4], row[5], row[6], row[7]) for row in rows]
        return list(reversed(found))
