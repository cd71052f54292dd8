"""Memories that are looked at together: of a session that has ended, or of a user's day."""

# ruff: noqa: S608  (what is put together are constants of this module; every value is bound)

from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, own_write_reads
from loom_memory.domain.memory import Identity
from loom_memory.domain.mining import CONSOLIDATED, Group, Grouping, Source
from loom_memory.store.columns import IDENTITY
from loom_memory.store.filters import IN_SCOPE, in_scope

# What was made of memories is not made into more.
_PLAIN: Final = f"""{IN_SCOPE} AND tombstoned_at IS NULL
    AND (expires_at IS NULL OR expires_at > {{now:DateTime64(3, 'UTC')}})
    AND NOT has(tags, '{CONSOLIDATED}')"""

# In the order of their newest memory, so that what is not over yet comes last.
_GROUPS: Final = {
    Grouping.SESSION: f"""SELECT user_id, session_id, session_id AS name, max(version) AS newest, count() AS held
FROM memory FINAL WHERE {_PLAIN} AND session_id != ''
GROUP BY user_id, session_id
HAVING newest > {{after:UInt64}} AND max(updated_at) < {{before:DateTime64(3, 'UTC')}} AND held >= {{least:UInt32}}
ORDER BY newest, user_id, session_id LIMIT {{limit:UInt32}}""",
    Grouping.DAY: f"""SELECT user_id, '', toString(toDate(updated_at)) AS name, max(version) AS newest, count() AS held
FROM memory FINAL WHERE {_PLAIN}
GROUP BY user_id, toDate(updated_at)
HAVING newest > {{after:UInt64}} AND max(updated_at) < {{before:DateTime64(3, 'UTC')}} AND held >= {{least:UInt32}}
ORDER BY newest, user_id, name LIMIT {{limit:UInt32}}""",
}
_SOURCE: Final = f"{IDENTITY}, value, speaker, coalesce(event_time, created_at) AS at, version, actor"
_SOURCES: Final = {
    Grouping.SESSION: f"""SELECT {_SOURCE} FROM memory FINAL
WHERE {_PLAIN} AND user_id = {{user_id:String}} AND session_id = {{session_id:String}}
ORDER BY version DESC, {IDENTITY} LIMIT {{limit:UInt32}}""",
    Grouping.DAY: f"""SELECT {_SOURCE} FROM memory FINAL
WHERE {_PLAIN} AND user_id = {{user_id:String}} AND toString(toDate(updated_at)) = {{name:String}}
ORDER BY version DESC, {IDENTITY} LIMIT {{limit:UInt32}}""",
}


class MiningRepository:
    """Reads memories in groups; it writes nothing."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = own_write_reads(ch)

    async def groups(
        self, grouping: Grouping, scope: Scope, *, after: int, before: datetime, now: datetime, least: int, limit: int
    ) -> list[Group]:
        """Returns groups with news behind the version `after` that are over since `before`, oldest first."""
        parameters = {**in_scope(scope), "after": after, "before": before, "now": now, "least": least, "limit": limit}
        rows = await self._ch.query(_GROUPS[grouping], parameters, settings=self._reads)
        return [Group(row[0], row[1], row[2], row[3], row[4]) for row in rows]

    async def sources(self, grouping: Grouping, scope: Scope, group: Group, now: datetime, limit: int) -> list[Source]:
        """Returns the newest memories of a group, oldest first."""
        parameters = {
            **in_scope(scope),
            "now": now,
            "user_id": group.user_id,
            "limit": limit,
        }
        parameters["session_id" if grouping is Grouping.SESSION else "name"] = group.name
        rows = await self._ch.query(_SOURCES[grouping], parameters, settings=self._reads)
        found = [Source(Identity(*row[:3]), row[3], row[4], row[5], row[6], row[7]) for row in rows]
        return list(reversed(found))
