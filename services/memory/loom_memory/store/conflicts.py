"""The table `memory_conflicts`: pairs of memories that cannot both hold."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, Table, own_write_reads
from loom_memory.domain.conflict import Mark, State
from loom_memory.domain.memory import Identity
from loom_memory.store.filters import IN_SCOPE, in_scope

_TIME: Final = "DateTime64(3, 'UTC')"

TABLE: Final = Table.of(
    "memory_conflicts",
    org="LowCardinality(String)",
    namespace="LowCardinality(String)",
    conflict_id="String",
    newer_key="String",
    newer_user_id="String",
    newer_session_id="String",
    newer_version="UInt64",
    older_key="String",
    older_user_id="String",
    older_session_id="String",
    older_version="UInt64",
    cosine="Float32",
    ends_at=_TIME,
    restore_to=f"Nullable({_TIME})",
    state="LowCardinality(String)",
    resolution="LowCardinality(String)",
    resolved_by="String",
    note="String",
    actor="String",
    attempts="UInt16",
    retry_at=f"Nullable({_TIME})",
    created_at=_TIME,
    updated_at=_TIME,
    tombstoned_at=f"Nullable({_TIME})",
    version="UInt64",
)

_COLUMNS: Final = ", ".join(name for name in TABLE.column_names if name != "tombstoned_at")
_LIVE: Final = "tombstoned_at IS NULL"

_NAMED: Final = f"""SELECT {_COLUMNS} FROM memory_conflicts FINAL
WHERE {IN_SCOPE} AND conflict_id = {{conflict_id:String}} AND {_LIVE} LIMIT 1"""

# An absent user or session comes as None, which keeps every one; both memories of a conflict have the same user.
_PAGE: Final = f"""SELECT {_COLUMNS} FROM memory_conflicts FINAL
WHERE {IN_SCOPE} AND {_LIVE}
    AND (empty({{states:Array(String)}}) OR has({{states:Array(String)}}, state))
    AND ({{any_user:Bool}} OR newer_user_id = {{user:String}})
    AND ({{any_session:Bool}} OR (newer_session_id = {{session:String}} AND older_session_id = {{session:String}}))
    AND ({{key:String}} = '' OR newer_key = {{key:String}} OR older_key = {{key:String}})
    AND ({{before:String}} = '' OR conflict_id < {{before:String}})
ORDER BY conflict_id DESC LIMIT {{limit:UInt32}}"""

_OF_MEMORY: Final = f"""SELECT {_COLUMNS} FROM memory_conflicts FINAL
WHERE {IN_SCOPE} AND {_LIVE} AND ((newer_key = {{key:String}} AND newer_user_id = {{user_id:String}}
        AND newer_session_id = {{session_id:String}})
    OR (older_key = {{key:String}} AND older_user_id = {{user_id:String}} AND older_session_id = {{session_id:String}}))
ORDER BY conflict_id DESC LIMIT {{limit:UInt32}}"""

_DUE: Final = f"""SELECT {_COLUMNS} FROM memory_conflicts FINAL
WHERE {_LIVE} AND state = 'open' AND attempts < {{attempts:UInt16}}
    AND (retry_at IS NULL OR retry_at <= {{now:DateTime64(3, 'UTC')}})
    AND created_at > {{since:DateTime64(3, 'UTC')}} AND NOT has({{held_orgs:Array(String)}}, org)
    AND NOT has({{held_writers:Array(Tuple(String, String, String, String))}},
        (toString(org), toString(namespace), actor, if({{by_user:Bool}}, newer_user_id, '')))
ORDER BY created_at, org, namespace, conflict_id LIMIT {{limit:UInt32}}"""

_UNSETTLED: Final = f"""SELECT {_COLUMNS} FROM memory_conflicts FINAL
WHERE {_LIVE} AND state = 'open' AND created_at <= {{until:DateTime64(3, 'UTC')}} AND updated_at = created_at
ORDER BY created_at, org, namespace, conflict_id LIMIT {{limit:UInt32}}"""


@dataclass(frozen=True, slots=True)
class ConflictFilter:
    """Which conflicts of a namespace a list is about; None keeps every user or session, empty states every state."""

    user_id: str | None = None
    session_id: str | None = None
    states: Collection[State] = ()
    key: str = ""


class ConflictRepository:
    """Owns the table `memory_conflicts`; no other class names it."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = own_write_reads(ch)

    async def put(self, marks: Sequence[Mark]) -> None:
        """Stores marks, or what became of them."""
        if marks:
            await self._ch.insert(TABLE, [_row(mark) for mark in marks])

    async def find(self, scope: Scope, conflict_id: str) -> Mark | None:
        """Returns one mark, or None where there is none of that name."""
        found = await self._marks(_NAMED, {**in_scope(scope), "conflict_id": conflict_id})
        return found[0] if found else None

    async def page(self, scope: Scope, wanted: ConflictFilter, before: str, limit: int) -> list[Mark]:
        """Returns marks older than `before`, newest first; empty begins with the newest."""
        parameters = {
            **in_scope(scope),
            "states": [state.value for state in wanted.states],
            "any_user": wanted.user_id is None,
            "user": wanted.user_id or "",
            "any_session": wanted.session_id is None,
            "session": wanted.session_id or "",
            "key": wanted.key,
            "before": before,
            "limit": limit,
        }
        return await self._marks(_PAGE, parameters)

    async def of_memory(self, scope: Scope, identity: Identity, limit: int) -> list[Mark]:
        """Returns the marks that a memory is part of, newest first."""
        parameters = {
            **in_scope(scope),
            "key": identity.key,
            "user_id": identity.user_id,
            "session_id": identity.session_id,
            "limit": limit,
        }
        return await self._marks(_OF_MEMORY, parameters)

    async def due(
        self,
        now: datetime,
        *,
        since: datetime,
        most_attempts: int,
        limit: int,
        held_orgs: Collection[str] = (),
        held_writers: Collection[tuple[str, str, str, str]] = (),
        by_user: bool = False,
    ) -> list[Mark]:
        """Returns open marks of all namespaces whose time has come, the oldest first, but for those that are held.

        Args:
            now: Marks that wait for a later time are left out.
            since: So are those that were found before this.
            most_attempts: So are those that failed as often.
            limit: Most marks to return.
            held_orgs: Organisations whose calls to models are not made.
            held_writers: Organisation, namespace, actor and user of those whose calls are not.
            by_user: Whether the users of a writer are told apart.
        """
        parameters = {
            "now": now,
            "since": since,
            "attempts": most_attempts,
            "limit": limit,
            "held_orgs": sorted(held_orgs),
            "held_writers": sorted(held_writers),
            "by_user": by_user,
        }
        return await self._marks(_DUE, parameters)

    async def unsettled(self, until: datetime, limit: int) -> list[Mark]:
        """Returns open marks of all namespaces that were found before `until` and of which nothing was heard since."""
        return await self._marks(_UNSETTLED, {"until": until, "limit": limit})

    async def _marks(self, sql: str, parameters: dict[str, object]) -> list[Mark]:
        return [_mark(row) for row in await self._ch.query(sql, parameters, settings=self._reads)]


def _row(mark: Mark) -> tuple[object, ...]:
    return (
        mark.scope.org,
        mark.scope.namespace,
        mark.conflict_id,
        *mark.newer,
        mark.newer_version,
        *mark.older,
        mark.older_version,
        mark.cosine,
        mark.ends_at,
        mark.restore_to,
        mark.state.value,
        mark.resolution,
        mark.resolved_by,
        mark.note,
        mark.actor,
        mark.attempts,
        mark.retry_at,
        mark.created_at,
        mark.updated_at,
        None,
        mark.version,
    )


def _mark(row: Sequence[Any]) -> Mark:  # Any: a row's types are the columns'
    return Mark(
        scope=Scope(row[0], row[1]),
        conflict_id=row[2],
        newer=Identity(*row[3:6]),
        newer_version=row[6],
        older=Identity(*row[7:10]),
        older_version=row[10],
        cosine=row[11],
        ends_at=row[12],
        restore_to=row[13],
        state=State(row[14]),
        resolution=row[15],
        resolved_by=row[16],
        note=row[17],
        actor=row[18],
        attempts=row[19],
        retry_at=row[20],
        created_at=row[21],
        updated_at=row[22],
        version=row[23],
    )
