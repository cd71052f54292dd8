"""Counts over tables that others own: `memory`, its versions, conflicts and exposures, and documents."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, own_write_reads
from loom_memory.inventory.domain.counts import AGES, BY, Names, Totals, Writer
from loom_memory.store.columns import IDENTITY
from loom_memory.store.filters import IN_SCOPE, in_scope

_TIME: Final = "DateTime64(3, 'UTC')"
_NOW: Final = f"{{now:{_TIME}}}"
_LIVE: Final = f"{IN_SCOPE} AND tombstoned_at IS NULL AND (expires_at IS NULL OR expires_at > {_NOW})"
_DOCUMENT: Final = f"{IN_SCOPE} AND tombstoned_at IS NULL"
_IN_SPAN: Final = f">= {{since:{_TIME}}}"
_BEFORE_END: Final = f"< {{until:{_TIME}}}"

_TOTALS: Final = f"""SELECT count(), uniqExactIf(user_id, user_id != ''),
    uniqExactIf((user_id, session_id), session_id != ''), uniqExactIf(agent, agent != ''), countIf(pinned),
    countIf(invalid_at IS NOT NULL AND invalid_at <= {_NOW}),
    (SELECT count() FROM memory_conflicts FINAL WHERE {IN_SCOPE} AND tombstoned_at IS NULL AND state = 'open'),
    (SELECT count() FROM knowledge_documents FINAL WHERE {_DOCUMENT}),
    (SELECT sum(toUInt64(size_bytes)) FROM knowledge_documents FINAL WHERE {_DOCUMENT}),
    if(count() = 0, NULL, min(created_at)), if(count() = 0, NULL, max(updated_at))
FROM memory FINAL WHERE {_LIVE}"""

# A key that was made of its content has no name to begin with.
_PREFIX: Final = "if(match(memory_key, '^m-[0-9a-f]{30}$'), '', extract(memory_key, '^([^:/._-]+)[:/._-]'))"
_AGE: Final = f"""multiIf(updated_at > {_NOW} - INTERVAL 1 DAY, '1 day', updated_at > {_NOW} - INTERVAL 7 DAY, '7 days',
    updated_at > {_NOW} - INTERVAL 30 DAY, '30 days', updated_at > {_NOW} - INTERVAL 90 DAY, '90 days',
    updated_at > {_NOW} - INTERVAL 365 DAY, '365 days', 'older')"""
_COUNTED: Final = f"""SELECT pair.1 AS by, pair.2 AS name, count() AS held FROM (
    SELECT arrayJoin(arrayConcat([('kind', toString(kind)), ('agent', agent), ('user', user_id), ('actor', actor),
        ('sensitivity', toString(sensitivity)), ('age', {_AGE}), ('key_prefix', {_PREFIX})],
        arrayMap(tag -> ('tag', tag), tags))) AS pair
    FROM memory FINAL WHERE {_LIVE}
    UNION ALL
    SELECT arrayJoin([('document_kind', toString(kind)), ('document_language', toString(language))]) AS pair
    FROM knowledge_documents FINAL WHERE {_DOCUMENT}
) WHERE has({{by:Array(String)}}, by) AND NOT (by = 'key_prefix' AND name = '') GROUP BY by, name"""
_NAMES: Final = f"""SELECT by, name, held, count() OVER (PARTITION BY by), sum(held) OVER (PARTITION BY by)
FROM ({_COUNTED}) ORDER BY by, held DESC, name LIMIT {{limit:UInt32}} BY by"""

_WRITERS: Final = f"""SELECT actor, agent, countIf(revision = 1), countIf(revision > 1)
FROM memory_versions WHERE {IN_SCOPE} AND tombstoned_at IS NULL AND updated_at {_IN_SPAN} AND updated_at {_BEFORE_END}
GROUP BY actor, agent ORDER BY count() DESC, actor, agent LIMIT {{limit:UInt32}}"""
_SHOWN: Final = f"""SELECT uniqExact({IDENTITY}) FROM memory_exposures
WHERE {IN_SCOPE} AND shown_at {_IN_SPAN} AND shown_at {_BEFORE_END}"""
_CONFLICTS: Final = f"""SELECT countIf(created_at {_IN_SPAN} AND created_at {_BEFORE_END}),
    countIf(state = 'resolved' AND updated_at {_IN_SPAN} AND updated_at {_BEFORE_END})
FROM memory_conflicts FINAL WHERE {IN_SCOPE} AND tombstoned_at IS NULL"""


class NamespaceCounts:
    """Counts one namespace as it is now; the work grows with its rows alone."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = own_write_reads(ch)

    async def totals(self, scope: Scope, now: datetime) -> Totals:
        """Returns what is held in all."""
        rows = await self._ch.query(_TOTALS, {**in_scope(scope), "now": now}, settings=self._reads)
        return Totals(*rows.rows[0])

    async def names(self, scope: Scope, now: datetime, by: Sequence[str], limit: int) -> tuple[Names, ...]:
        """Returns counts by name, in the order of `BY`; what has no names is left out."""
        parameters = {**in_scope(scope), "now": now, "by": list(by), "limit": limit}
        found: dict[str, list[tuple[str, int]]] = {}
        sums: dict[str, tuple[int, int]] = {}
        for each, name, held, names, total in await self._ch.query(_NAMES, parameters, settings=self._reads):
            found.setdefault(each, []).append((name, held))
            sums[each] = (names, total)
        if "age" in found:
            found["age"].sort(key=lambda counted: AGES.index(counted[0]))
        return tuple(Names(each, tuple(found[each]), *sums[each]) for each in BY if each in found)

    async def writers(self, scope: Scope, since: datetime, until: datetime, limit: int) -> tuple[Writer, ...]:
        """Returns who wrote, most versions first, equal ones by name; of memories that still are there."""
        parameters = {**in_scope(scope), "since": since, "until": until, "limit": limit}
        return tuple(Writer(*row) for row in await self._ch.query(_WRITERS, parameters, settings=self._reads))

    async def shown(self, scope: Scope, since: datetime, until: datetime) -> int:
        """Returns how many memories some answer showed."""
        parameters = {**in_scope(scope), "since": since, "until": until}
        return int((await self._ch.query(_SHOWN, parameters, settings=self._reads)).scalar())

    async def conflicts(self, scope: Scope, since: datetime, until: datetime) -> tuple[int, int]:
        """Returns how many conflicts were found and how many resolved."""
        parameters = {**in_scope(scope), "since": since, "until": until}
        found, resolved = (await self._ch.query(_CONFLICTS, parameters, settings=self._reads)).rows[0]
        return found, resolved
