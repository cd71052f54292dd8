"""The table `working_memory`: what sessions keep in mind."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, Row, Table, own_write_reads
from loom_memory.sessions.domain.working import Session, WorkingItem
from loom_memory.store.filters import IN_SCOPE, in_scope

_TIME: Final = "DateTime64(3, 'UTC')"
TABLE: Final = Table.of(
    "working_memory",
    org="LowCardinality(String)",
    namespace="LowCardinality(String)",
    user_id="String",
    session_id="String",
    label="String",
    value="String",
    revision="UInt32",
    actor="String",
    updated_at=_TIME,
    expires_at=_TIME,
    kept_until=_TIME,
    tombstoned_at=f"Nullable({_TIME})",
    version="UInt64",
)

LIVE: Final = f"tombstoned_at IS NULL AND expires_at > {{now:{_TIME}}}"
"""Keeps items that are there. Only under FINAL."""

_COLUMNS: Final = (
    "label, value, user_id, session_id, revision, actor, updated_at, expires_at, kept_until, tombstoned_at"
)
_OF_SESSION: Final = f"{IN_SCOPE} AND user_id = {{user_id:String}} AND session_id = {{session_id:String}}"
_ITEMS: Final = f"""SELECT {_COLUMNS} FROM working_memory FINAL
WHERE {_OF_SESSION} AND {LIVE} ORDER BY updated_at DESC, label LIMIT {{limit:UInt32}}"""
_NEWEST: Final = f"""SELECT {_COLUMNS} FROM working_memory FINAL
WHERE {_OF_SESSION} AND label = {{label:String}} ORDER BY label LIMIT 1"""


class WorkingRepository:
    """Owns the table; no other class names it."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = {"max_threads": 1, **own_write_reads(ch)}

    async def insert(self, scope: Scope, items: Iterable[WorkingItem], version: int) -> None:
        """Stores items; every read that begins later sees them."""
        rows = [
            (
                scope.org, scope.namespace, *item.session, item.label, item.value, item.version, item.actor,
                item.updated_at, item.expires_at, item.kept_until, item.updated_at if item.is_removed else None,
                version,
            )
            for item in items
        ]  # fmt: skip
        if rows:
            await self._ch.insert(TABLE, rows)

    async def items(self, scope: Scope, session: Session, now: datetime, limit: int) -> list[WorkingItem]:
        """Returns a session's items that are there, the newest value first, and by label."""
        parameters = {**in_scope(scope), **session._asdict(), "now": now, "limit": limit}
        return _items(list(await self._ch.query(_ITEMS, parameters, settings=self._reads)))

    async def newest(self, scope: Scope, session: Session, label: str) -> WorkingItem | None:
        """Returns the newest version of an item, one that is gone too."""
        parameters = {**in_scope(scope), **session._asdict(), "label": label}
        rows = await self._ch.query(_NEWEST, parameters, settings=self._reads)
        return next(iter(_items(list(rows))), None)


def _items(rows: Sequence[Row]) -> list[WorkingItem]:
    return [
        WorkingItem(
            row[0], row[1], Session(row[2], row[3]), row[4], row[5], row[6], row[7], row[8],
            is_removed=row[9] is not None,
        )
        for row in rows
    ]  # fmt: skip
