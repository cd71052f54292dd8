"""How often the table `memory_exposures` holds one memory; `exposures` owns the table."""

from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, own_write_reads
from loom_memory.domain.memory import Identity
from loom_memory.store.memories import POINT_READ

_COUNT: Final = """SELECT uniq(request_id) FROM memory_exposures
WHERE org = {org:String} AND namespace = {namespace:String} AND memory_key = {key:String}
    AND user_id = {user_id:String} AND session_id = {session_id:String}
    AND shown_at >= {since:DateTime64(3, 'UTC')}"""


class ExposureCounts:
    """Counts answers that showed a memory."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = {**POINT_READ, **own_write_reads(ch)}

    async def count(self, scope: Scope, identity: Identity, since: datetime) -> int:
        """Returns in how many answers a memory was shown at or after a time."""
        parameters = {
            "org": scope.org,
            "namespace": scope.namespace,
            "key": identity.key,
            "user_id": identity.user_id,
            "session_id": identity.session_id,
            "since": since,
        }
        return int((await self._ch.query(_COUNT, parameters, settings=self._reads)).scalar())
