"""Which memories are pinned, by the table `memory`; `store/memories.py` owns the table."""

from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, own_write_reads
from loom_memory.domain.memory import Identity
from loom_memory.store.columns import IDENTITY
from loom_memory.store.filters import IN_SCOPE, in_scope

# Reads one column of the namespace, and versions that were replaced as well: whoever asks checks what it names. In a
# namespace of 100,000 memories it takes 10 ms, and merging all their versions 33 (measured 2026-12-01, two cores).
_EVER_PINNED: Final = f"""SELECT DISTINCT {IDENTITY} FROM memory WHERE {IN_SCOPE} AND pinned
ORDER BY {IDENTITY} LIMIT {{limit:UInt32}}"""  # noqa: S608  (constants; every value is bound)


class PinnedIdentities:
    """Names memories that were pinned at some time."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = own_write_reads(ch)

    async def read(self, scope: Scope, limit: int) -> list[Identity]:
        """Returns those of which some version is pinned, in order."""
        parameters = {**in_scope(scope), "limit": limit}
        return [Identity(*row) for row in await self._ch.query(_EVER_PINNED, parameters, settings=self._reads)]
