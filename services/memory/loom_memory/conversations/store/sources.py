"""Memories whose source is a conversation."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from collections.abc import Collection
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, own_write_reads
from loom_memory.domain.memory import Identity
from loom_memory.store.columns import IDENTITY
from loom_memory.store.filters import IN_SCOPE, in_scope

MARK: Final = "conversation:"
"""What a source begins with that names a conversation; the turn stands behind `message:`."""

_MESSAGE: Final = " message:"
_MADE: Final = f"""SELECT {IDENTITY}, source FROM memory FINAL
WHERE {IN_SCOPE} AND (source = {{source:String}} OR startsWith(source, {{of_turns:String}}))
    AND tombstoned_at IS NULL AND (expires_at IS NULL OR expires_at > {{now:DateTime64(3, 'UTC')}})
    AND (NOT {{of_users:Bool}} OR has({{users:Array(String)}}, user_id))
ORDER BY {IDENTITY} LIMIT {{limit:UInt32}}"""


class MadeOfConversations:
    """Reads memories that were taken from conversations; it writes nothing."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = {"max_threads": 1, **own_write_reads(ch)}

    async def memories(
        self, scope: Scope, conversation_id: str, users: Collection[str] | None, now: datetime, limit: int
    ) -> list[tuple[Identity, str]]:
        """Returns memories that say they come from a conversation, each with its turn, empty for the whole of it."""
        source = f"{MARK}{conversation_id}"
        parameters = {
            **in_scope(scope),
            "source": source,
            "of_turns": f"{source}{_MESSAGE}",
            "of_users": users is not None,
            "users": sorted(users or ()),
            "now": now,
            "limit": limit,
        }
        rows = await self._ch.query(_MADE, parameters, settings=self._reads)
        return [(Identity(*row[:3]), row[3].removeprefix(source).removeprefix(_MESSAGE)) for row in rows]
