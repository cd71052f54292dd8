"""How the memories of a namespace were used, read from the table `memory_signals`; `signals` owns the table."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse
from loom_memory.domain.memory import Identity
from loom_memory.domain.signals import Use
from loom_memory.store.columns import IDENTITY
from loom_memory.store.filters import IN_SCOPE, in_scope

# A caller's last word counts, and of a key only what was said in its present life.
_USES: Final = f"""SELECT {IDENTITY}, sum(repeated) AS times, toInt64(countIf(word = 'useful'))
    - toInt64(countIf(word = 'not_useful')) - toInt64(countIf(word = 'wrong')) AS helpful
FROM (
    SELECT {IDENTITY}, actor, countIf(signal = 'repeated') AS repeated,
        argMaxIf(signal, (recorded_at, request_id), signal != 'repeated') AS word
    FROM memory_signals
    INNER JOIN (
        SELECT {IDENTITY}, created_at FROM memory FINAL WHERE {IN_SCOPE} AND tombstoned_at IS NULL
    ) AS held USING ({IDENTITY})
    WHERE {IN_SCOPE} AND recorded_at >= created_at
    GROUP BY {IDENTITY}, actor
)
GROUP BY {IDENTITY} ORDER BY times DESC, {IDENTITY} LIMIT {{limit:UInt32}}"""

MAX_USES: Final = 10_000
"""Most memories of one namespace whose use is known; those that were told again most often."""


class StoredUses:
    """Counts uses. A `Reinforcement`."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch

    async def uses(self, scope: Scope) -> dict[Identity, Use]:
        """See `Reinforcement.uses`."""
        rows = await self._ch.query(_USES, {**in_scope(scope), "limit": MAX_USES})
        return {Identity(*row[:3]): Use(reinforced=int(row[3]), helpful=int(row[4])) for row in rows}
