"""The table `session_briefs`: every version of the briefs of sessions."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from collections.abc import Sequence
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, Row, Table, own_write_reads
from loom_memory.domain.memory import Identity
from loom_memory.sessions.domain.briefs import Origin, SessionBrief
from loom_memory.sessions.domain.working import Session
from loom_memory.store.filters import IN_SCOPE, in_scope

TABLE: Final = Table.of(
    "session_briefs",
    org="LowCardinality(String)",
    namespace="LowCardinality(String)",
    user_id="String",
    session_id="String",
    revision="UInt32",
    agent="String",
    text="String",
    origin="LowCardinality(String)",
    model="String",
    evidence="Array(Tuple(String, String, String))",
    turn_count="UInt32",
    actor="String",
    updated_at="DateTime64(3, 'UTC')",
    version="UInt64",
)

_COLUMNS: Final = "user_id, session_id, agent, text, revision, origin, model, evidence, turn_count, actor, updated_at"
_OF_USER: Final = f"{IN_SCOPE} AND user_id = {{user_id:String}}"
_ONE: Final = f"""SELECT {_COLUMNS} FROM session_briefs FINAL
WHERE {_OF_USER} AND session_id = {{session_id:String}} AND revision <= {{upto:UInt32}} AND revision >= {{from:UInt32}}
ORDER BY revision DESC LIMIT 1"""
_LATEST: Final = f"""SELECT {_COLUMNS} FROM (
    SELECT {_COLUMNS} FROM session_briefs FINAL WHERE {_OF_USER}
    ORDER BY session_id, revision DESC LIMIT 1 BY session_id
) ORDER BY updated_at DESC, session_id LIMIT {{limit:UInt32}}"""

_ABOVE_ALL: Final = 2**32 - 1


class BriefRepository:
    """Owns the table; no other class names it."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = {"max_threads": 1, **own_write_reads(ch)}

    async def insert(self, scope: Scope, brief: SessionBrief, version: int) -> None:
        """Stores a version; every read that begins later sees it."""
        row = (
            scope.org, scope.namespace, *brief.session, brief.version, brief.agent, brief.text, brief.origin.value,
            brief.model, [tuple(one) for one in brief.memories], brief.turns, brief.actor, brief.updated_at, version,
        )  # fmt: skip
        await self._ch.insert(TABLE, [row])

    async def one(self, scope: Scope, session: Session, version: int | None = None) -> SessionBrief | None:
        """Returns a version of a session's brief; None for its newest."""
        bounds = {"from": 0, "upto": _ABOVE_ALL} if version is None else {"from": version, "upto": version}
        parameters = {**in_scope(scope), **session._asdict(), **bounds}
        rows = await self._ch.query(_ONE, parameters, settings=self._reads)
        return next(iter(_briefs(list(rows))), None)

    async def latest(self, scope: Scope, user_id: str, limit: int) -> list[SessionBrief]:
        """Returns the newest briefs of a user's sessions, one of each, the one that was saved last first."""
        parameters = {**in_scope(scope), "user_id": user_id, "limit": limit}
        return _briefs(list(await self._ch.query(_LATEST, parameters, settings=self._reads)))


def _briefs(rows: Sequence[Row]) -> list[SessionBrief]:
    return [
        SessionBrief(
            Session(row[0], row[1]), row[2], row[3], row[4], Origin(row[5]), row[6],
            tuple(Identity(*one) for one in row[7]), row[8], row[9], row[10],
        )
        for row in rows
    ]  # fmt: skip
