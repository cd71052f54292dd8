"""The table `extraction_queue`: conversations that wait for their facts."""

# ruff: noqa: S608  (what is put together are constants of this module; every value is bound)

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, Column, Table, own_write_reads
from loom_common.errors import Reason
from loom_memory.domain.extractions import Counts, Extraction, State
from loom_memory.store.filters import IN_SCOPE, in_scope

_TIME: Final = "DateTime64(3, 'UTC')"
TABLE: Final = Table(
    "extraction_queue",
    (
        Column("org", "LowCardinality(String)"),
        Column("namespace", "LowCardinality(String)"),
        Column("extraction_id", "String"),
        Column("user_id", "String"),
        Column("session_id", "String"),
        Column("agent", "String"),
        Column("enqueued_by", "String"),
        Column("capture", "LowCardinality(String)"),
        Column("tags", "Array(String)"),
        Column("source", "String"),
        Column("payload", "String"),
        Column("state", "LowCardinality(String)"),
        Column("held", "Bool"),
        Column("attempts", "UInt16"),
        Column("due_at", _TIME),
        Column("leased_until", f"Nullable({_TIME})"),
        Column("done_windows", "Array(UInt32)"),
        Column("extracted", "UInt32"),
        Column("stored", "UInt32"),
        Column("unchanged", "UInt32"),
        Column("refused", "UInt32"),
        Column("stored_keys", "Array(String)"),
        Column("reason", "LowCardinality(String)"),
        Column("message", "String"),
        Column("model", "LowCardinality(String)"),
        Column("created_at", _TIME),
        Column("updated_at", _TIME),
        Column("version", "UInt64"),
    ),
)

LIVE: Final = "payload != ''"
"""Keeps the rows of `extraction_queue` that hold text of a conversation."""

_COLUMNS: Final = ", ".join(TABLE.column_names)
_NOW: Final = "{now:DateTime64(3, 'UTC')}"
_READY: Final = (
    f"((state = 'pending' AND due_at <= {_NOW}) OR (state = 'running' AND ifNull(leased_until, {_NOW}) <= {_NOW}))"
)
_HOLDS: Final = f"FROM extraction_queue FINAL WHERE held AND state = 'running' AND leased_until > {_NOW}"

# What is held is out before any limit, so that it never takes the place of work that can be done: an organisation
# whose calls are off, a namespace that has spent its day, a writer who is refused. Then each namespace has its turn,
# and in it each who asked.
_DUE: Final = f"""SELECT org, namespace, extraction_id FROM (
    SELECT org, namespace, extraction_id, created_at,
        row_number() OVER (PARTITION BY org, namespace ORDER BY turn, created_at, extraction_id) AS round
    FROM (
        SELECT org, namespace, extraction_id, created_at,
            row_number() OVER (PARTITION BY org, namespace, enqueued_by ORDER BY created_at, extraction_id)
                + arrayCount(busy -> busy = (toString(org), toString(namespace), enqueued_by),
                    {{busy:Array(Tuple(String, String, String))}}) AS turn
        FROM extraction_queue FINAL
        WHERE {_READY}
            AND NOT has({{off:Array(String)}}, org)
            AND NOT has({{busy_ids:Array(Tuple(String, String, String))}},
                (toString(org), toString(namespace), extraction_id))
            AND org NOT IN (SELECT org {_HOLDS} AND reason = {{calls_off:String}})
            AND (org, namespace) NOT IN (SELECT org, namespace {_HOLDS} AND reason = {{spent:String}})
            AND (org, namespace, enqueued_by) NOT IN (SELECT org, namespace, enqueued_by {_HOLDS})
    )
    WHERE turn <= {{most_each:UInt32}}
)
ORDER BY round, created_at, org, namespace, extraction_id LIMIT {{limit:UInt32}}"""

_ONE: Final = f"""SELECT {_COLUMNS} FROM extraction_queue FINAL
WHERE {IN_SCOPE} AND extraction_id = {{id:String}}"""

_COUNTS: Final = f"""SELECT countIf(state = 'pending'), countIf(state = 'running' AND NOT held),
    countIf(state = 'running' AND held), countIf(state = 'dead'),
    ifNull(dateDiff('second', minOrNull(if(state = 'pending', created_at, NULL)), {_NOW}), 0)
FROM extraction_queue FINAL"""

_DEAD: Final = """SELECT org, namespace, extraction_id FROM extraction_queue FINAL
WHERE state = 'dead' AND ({org:String} = '' OR org = {org:String})
    AND ({namespace:String} = '' OR namespace = {namespace:String})
    AND (empty({ids:Array(String)}) OR has({ids:Array(String)}, extraction_id))
ORDER BY updated_at DESC, org, namespace, extraction_id LIMIT {limit:UInt32}"""

_ENDED: Final = """SELECT org, namespace, extraction_id FROM extraction_queue FINAL
WHERE state IN ('done', 'failed') AND updated_at < {before:DateTime64(3, 'UTC')}
ORDER BY org, namespace, extraction_id LIMIT {limit:UInt32}"""

# A superseded version still holds the messages until the engine merges it away.
_SUPERSEDED: Final = """SELECT count() FROM extraction_queue
WHERE payload != '' AND (org, namespace, extraction_id) IN (
    SELECT org, namespace, extraction_id FROM extraction_queue FINAL WHERE state IN ('done', 'failed'))"""

_SCRUB: Final = """ALTER TABLE extraction_queue DELETE
WHERE payload != '' AND (org, namespace, extraction_id) IN (
    SELECT org, namespace, extraction_id FROM extraction_queue FINAL WHERE state IN ('done', 'failed'))"""

_REMOVE: Final = """ALTER TABLE extraction_queue DELETE
WHERE (org, namespace, extraction_id) IN {rows:Array(Tuple(String, String, String))}"""

Named = tuple[Scope, str]
"""The place of a row: its namespace and its name."""


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """How many extractions are where."""

    pending: int
    running: int
    held: int
    dead: int
    oldest_pending_s: int


@dataclass(frozen=True, slots=True)
class Busy:
    """What is worked on in this process: by namespace, name and who asked."""

    scope: Scope
    id: str
    enqueued_by: str


class ExtractionRepository:
    """Owns the table `extraction_queue`; no other class writes it."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = own_write_reads(ch)

    async def put(self, row: Extraction) -> None:
        """Stores a version of a row."""
        await self._ch.insert(TABLE, [_row_from_extraction(row)])

    async def get(self, scope: Scope, extraction_id: str) -> Extraction | None:
        """Returns a row as it is now."""
        rows = await self._ch.query(_ONE, {**in_scope(scope), "id": extraction_id}, settings=self._reads)
        first = rows.first()
        return None if first is None else _extraction_from_row(first)

    async def due(
        self, now: datetime, *, off: Collection[str], busy: Sequence[Busy], most_each: int, limit: int
    ) -> list[Named]:
        """Returns what can be worked on now: a turn for each namespace, and in it one for each who asked.

        Args:
            now: Time.
            off: Organisations whose calls are switched off.
            busy: What is worked on here already.
            most_each: Most that is worked on at once for one who asked.
            limit: Most rows.
        """
        parameters = {
            "now": now,
            "off": sorted(off),
            "busy": [(one.scope.org, one.scope.namespace, one.enqueued_by) for one in busy],
            "busy_ids": [(one.scope.org, one.scope.namespace, one.id) for one in busy],
            "calls_off": Reason.MODEL_CALLS_OFF.value,
            "spent": Reason.BUDGET_EXHAUSTED.value,
            "most_each": most_each,
            "limit": limit,
        }
        return _named(await self._ch.query(_DUE, parameters, settings=self._reads))

    async def counts(self, now: datetime) -> QueueCounts:
        """Counts what is where in the whole queue."""
        row = (await self._ch.query(_COUNTS, {"now": now}, settings=self._reads)).rows[0]
        return QueueCounts(*(int(value) for value in row))

    async def dead(self, org: str, namespace: str, ids: Sequence[str], limit: int) -> list[Named]:
        """Returns what is not tried any more, newest first; an empty name or list keeps everything."""
        parameters = {"org": org, "namespace": namespace, "ids": list(ids), "limit": limit}
        return _named(await self._ch.query(_DEAD, parameters, settings=self._reads))

    async def ended(self, before: datetime, limit: int) -> list[Named]:
        """Returns what ended before a time."""
        return _named(await self._ch.query(_ENDED, {"before": before, "limit": limit}, settings=self._reads))

    async def remove(self, rows: Sequence[Named]) -> None:
        """Removes rows with all their versions."""
        named = [(scope.org, scope.namespace, extraction_id) for scope, extraction_id in rows]
        await self._ch.command(_REMOVE, {"rows": named})

    async def scrub(self) -> int:
        """Removes the messages that superseded versions of ended rows still hold, and returns how many held some."""
        count = int((await self._ch.query(_SUPERSEDED, settings=self._reads)).scalar())
        if count:
            await self._ch.command(_SCRUB, settings={"mutations_sync": 2})
        return count


def _named(rows: Any) -> list[Named]:  # Any: rows of three texts
    return [(Scope(row[0], row[1]), row[2]) for row in rows]


def _row_from_extraction(row: Extraction) -> tuple[object, ...]:
    return (
        row.scope.org,
        row.scope.namespace,
        row.id,
        row.user_id,
        row.session_id,
        row.agent,
        row.enqueued_by,
        row.capture,
        list(row.tags),
        row.source,
        row.payload,
        row.state.value,
        row.held,
        row.attempts,
        row.due_at,
        row.leased_until,
        list(row.done_windows),
        row.counts.extracted,
        row.counts.stored,
        row.counts.unchanged,
        row.counts.refused,
        list(row.stored_keys),
        row.reason,
        row.message,
        row.model,
        row.created_at,
        row.updated_at,
        row.version,
    )


def _extraction_from_row(row: Sequence[Any]) -> Extraction:  # Any: a row's types are the columns'
    return Extraction(
        scope=Scope(row[0], row[1]),
        id=row[2],
        user_id=row[3],
        session_id=row[4],
        agent=row[5],
        enqueued_by=row[6],
        capture=row[7],
        tags=tuple(row[8]),
        source=row[9],
        payload=row[10],
        state=State(row[11]),
        held=bool(row[12]),
        attempts=row[13],
        due_at=row[14],
        leased_until=row[15],
        done_windows=tuple(row[16]),
        counts=Counts(row[17], row[18], row[19], row[20]),
        stored_keys=tuple(row[21]),
        reason=row[22],
        message=row[23],
        model=row[24],
        created_at=row[25],
        updated_at=row[26],
        version=row[27],
    )
