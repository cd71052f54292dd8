"""What is counted of a namespace, over tables that others own: `memory`, conflicts, exposures, queue, documents."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, own_write_reads
from loom_memory.guides.domain.findings import MOST_SUBJECTS, FindingSubject, Found, Kind
from loom_memory.guides.domain.health import Health, NamedCount
from loom_memory.store.columns import IDENTITY
from loom_memory.store.extractions import LIVE as QUEUED
from loom_memory.store.filters import IN_SCOPE, in_scope

_TIME: Final = "DateTime64(3, 'UTC')"
_NOW: Final = f"{{now:{_TIME}}}"
_LIVE: Final = f"{IN_SCOPE} AND tombstoned_at IS NULL AND (expires_at IS NULL OR expires_at > {_NOW})"
_ENDED: Final = f"(invalid_at IS NOT NULL AND invalid_at <= {_NOW})"
_MOST_KINDS: Final = 32
_MOST_AGENTS: Final = 200

_MEMORIES: Final = f"""SELECT count(), uniqExactIf(user_id, user_id != ''),
    uniqExactIf((user_id, session_id), session_id != ''), uniqExactIf(agent, agent != ''), countIf(pinned),
    countIf({_ENDED}), countIf(updated_at >= {{week:{_TIME}}}), if(count() = 0, NULL, max(updated_at))
FROM memory FINAL WHERE {_LIVE}"""
_HELD: Final = f"SELECT count() FROM memory FINAL WHERE {_LIVE}"
_KINDS: Final = f"""SELECT kind, count() AS held FROM memory FINAL WHERE {_LIVE}
GROUP BY kind ORDER BY held DESC, kind LIMIT {{limit:UInt32}}"""
_SHOWN: Final = f"""SELECT count() FROM memory FINAL WHERE {_LIVE} AND ({IDENTITY}) IN (
    SELECT {IDENTITY} FROM memory_exposures WHERE {IN_SCOPE} AND shown_at >= {{month:{_TIME}}})"""
_BESIDE: Final = f"""SELECT
    (SELECT count() FROM memory_conflicts FINAL WHERE {IN_SCOPE} AND tombstoned_at IS NULL AND state = 'open'),
    (SELECT count() FROM knowledge_documents FINAL WHERE {IN_SCOPE} AND tombstoned_at IS NULL),
    (SELECT count() FROM extraction_queue FINAL WHERE {IN_SCOPE} AND {QUEUED} AND state IN ('pending', 'running'))"""

# Each rule over one memory: a condition over its row.
_STALE: Final = f"(kind = 'fact' AND NOT pinned AND NOT {_ENDED} AND updated_at < {{stale:{_TIME}}})"
_LONG: Final = "(lengthUTF8(value) > {long:UInt32})"
_UNNAMED: Final = "match(memory_key, '^m-[0-9a-f]{30}$')"
_ENDED_PIN: Final = f"(pinned AND {_ENDED})"
_UNUSED: Final = f"""({{recorded:Bool}} AND created_at < {{unused:{_TIME}}} AND ({IDENTITY}) NOT IN (
    SELECT {IDENTITY} FROM memory_exposures WHERE {IN_SCOPE} AND shown_at >= {{unused:{_TIME}}}))"""
_RULES: Final = (
    (Kind.STALE_FACTS, _STALE),
    (Kind.LONG_MEMORIES, _LONG),
    (Kind.UNNAMED_KEYS, _UNNAMED),
    (Kind.ENDED_PINS, _ENDED_PIN),
    (Kind.NEVER_RECALLED, _UNUSED),
)
_COUNTED: Final = ", ".join(
    f"countIf({rule}), groupArraySortedIf({MOST_SUBJECTS})(({IDENTITY}), {rule})" for _, rule in _RULES
)
_BY_ROW: Final = f"""SELECT agent, count() AS held, {_COUNTED} FROM memory FINAL WHERE {_LIVE}
GROUP BY agent ORDER BY held DESC, agent LIMIT {{agents:UInt32}}"""
# Of memories of one text the one with the first name is kept, the others repeat it.
_DUPLICATES: Final = f"""SELECT agent, count() AS held, groupArraySorted({MOST_SUBJECTS})(({IDENTITY})) FROM (
    SELECT agent, {IDENTITY}, row_number() OVER (
        PARTITION BY agent, user_id, lowerUTF8(trimBoth(value)) ORDER BY memory_key, session_id) AS place
    FROM memory FINAL WHERE {_LIVE} AND NOT {_ENDED}
) WHERE place > 1 GROUP BY agent ORDER BY held DESC, agent LIMIT {{agents:UInt32}}"""
_CONFLICTS: Final = f"""SELECT agent, count() AS held, groupArraySorted({MOST_SUBJECTS})(({IDENTITY})) FROM (
    SELECT newer_key AS memory_key, newer_user_id AS user_id, newer_session_id AS session_id
    FROM memory_conflicts FINAL WHERE {IN_SCOPE} AND tombstoned_at IS NULL AND state = 'open'
) AS marks INNER JOIN (SELECT {IDENTITY}, agent FROM memory FINAL WHERE {_LIVE}) AS live USING ({IDENTITY})
GROUP BY agent ORDER BY held DESC, agent LIMIT {{agents:UInt32}}"""


class NamespaceFacts:
    """Counts a namespace. No statement of it is meant for a request to wait for each time."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = own_write_reads(ch)

    async def health(self, scope: Scope, now: datetime, *, week: datetime, month: datetime, recorded: bool) -> Health:
        """Returns the numbers, but for missing vectors, which depend on the model that is served."""
        parameters = {**in_scope(scope), "now": now}
        row = (await self._ch.query(_MEMORIES, {**parameters, "week": week}, settings=self._reads)).rows[0]
        kinds = await self._ch.query(_KINDS, {**parameters, "limit": _MOST_KINDS}, settings=self._reads)
        shown = None
        if recorded:
            shown = int((await self._ch.query(_SHOWN, {**parameters, "month": month}, settings=self._reads)).scalar())
        conflicts, documents, queued = (await self._ch.query(_BESIDE, in_scope(scope), settings=self._reads)).rows[0]
        return Health(
            memories=row[0],
            kinds=tuple(NamedCount(name=name, count=count) for name, count in kinds),
            users=row[1],
            sessions=row[2],
            agents=row[3],
            pinned=row[4],
            ended=row[5],
            written_week=row[6],
            shown_month=shown,
            open_conflicts=conflicts,
            documents=documents,
            queued=queued,
            last_write_at=row[7],
        )

    async def memories(self, scope: Scope, now: datetime) -> int:
        """Counts the memories that are shown."""
        return int((await self._ch.query(_HELD, {**in_scope(scope), "now": now}, settings=self._reads)).scalar())

    async def found(
        self, scope: Scope, now: datetime, *, stale: datetime, unused: datetime, long_chars: int, recorded: bool
    ) -> list[Found]:
        """Returns what each rule finds, by agent."""
        parameters = {**in_scope(scope), "now": now, "agents": _MOST_AGENTS}
        of_rows = {**parameters, "stale": stale, "unused": unused, "long": long_chars, "recorded": recorded}
        found: list[Found] = []
        for row in await self._ch.query(_BY_ROW, of_rows, settings=self._reads):
            for place, (kind, _) in enumerate(_RULES):
                found.append(_found(kind, row[0], row[2 + 2 * place], row[3 + 2 * place]))
        for kind, sql in ((Kind.DUPLICATES, _DUPLICATES), (Kind.UNRESOLVED_CONFLICTS, _CONFLICTS)):
            rows = await self._ch.query(sql, parameters, settings=self._reads)
            found.extend(_found(kind, *row) for row in rows)
        return [each for each in found if each.count]


def _found(kind: Kind, agent: str, count: int, subjects: list[tuple[str, str, str]]) -> Found:
    named = tuple(FindingSubject(key=key, user_id=user, session_id=session) for key, user, session in subjects)
    return Found(kind=kind, agent=agent, count=count, subjects=named)
