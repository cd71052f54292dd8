"""What a session left in other tables, for its brief."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, own_write_reads
from loom_memory.domain.memory import Identity
from loom_memory.domain.mining import CONSOLIDATED
from loom_memory.sessions.domain.briefs import Remembered
from loom_memory.sessions.domain.working import Session
from loom_memory.store.columns import IDENTITY
from loom_memory.store.filters import IN_SCOPE, in_scope

# What was made of memories says them again.
_MEMORIES: Final = f"""SELECT {IDENTITY}, kind, value, coalesce(event_time, created_at) AS at
FROM memory FINAL WHERE {IN_SCOPE} AND user_id = {{user_id:String}} AND session_id = {{session_id:String}}
    AND tombstoned_at IS NULL AND (expires_at IS NULL OR expires_at > {{now:DateTime64(3, 'UTC')}})
    AND (invalid_at IS NULL OR invalid_at > {{now:DateTime64(3, 'UTC')}}) AND NOT has(tags, '{CONSOLIDATED}')
ORDER BY version DESC, {IDENTITY} LIMIT {{limit:UInt32}}"""


class SessionSources:
    """Reads the memories of sessions; it writes nothing."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = {"max_threads": 1, **own_write_reads(ch)}

    async def memories(self, scope: Scope, session: Session, now: datetime, limit: int) -> list[Remembered]:
        """Returns the newest memories of a session, the oldest first."""
        parameters = {**in_scope(scope), **session._asdict(), "now": now, "limit": limit}
        rows = await self._ch.query(_MEMORIES, parameters, settings=self._reads)
        return [Remembered(Identity(*row[:3]), row[3], row[4], row[5]) for row in reversed(list(rows))]
