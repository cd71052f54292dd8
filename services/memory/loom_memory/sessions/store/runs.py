"""The table `runs`: which runs of agents there were."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, Row, Table, own_write_reads
from loom_memory.sessions.domain.runs import RunEntry, RunFilter, RunStatus
from loom_memory.sessions.domain.working import Session
from loom_memory.store.filters import IN_SCOPE, in_scope

_TIME: Final = "DateTime64(3, 'UTC')"
TABLE: Final = Table.of(
    "runs",
    org="LowCardinality(String)",
    namespace="LowCardinality(String)",
    run_key="String",
    run_id="String",
    user_id="String",
    session_id="String",
    agent="String",
    status="LowCardinality(String)",
    summary="String",
    started_at=_TIME,
    ended_at=f"Nullable({_TIME})",
    actor="String",
    updated_at=_TIME,
    version="UInt64",
)

_KEY_BYTES: Final = 15
_COLUMNS: Final = (
    "run_id, user_id, session_id, agent, status, summary, started_at, ended_at, actor, updated_at, run_key"
)
_ONE: Final = f"""SELECT {_COLUMNS} FROM runs FINAL
WHERE {IN_SCOPE} AND run_key = {{key:String}} ORDER BY run_key LIMIT 1"""
# The one that began last first; `behind` is where the page before ended.
_PAGE: Final = f"""SELECT {_COLUMNS} FROM runs FINAL
WHERE {IN_SCOPE} AND (NOT {{of_user:Bool}} OR user_id = {{user_id:String}})
    AND (NOT {{of_session:Bool}} OR session_id = {{session_id:String}})
    AND ({{agent:String}} = '' OR agent = {{agent:String}}) AND ({{status:String}} = '' OR status = {{status:String}})
    AND (NOT {{is_behind:Bool}} OR (started_at, run_key) < ({{behind_at:{_TIME}}}, {{behind:String}}))
ORDER BY started_at DESC, run_key DESC LIMIT {{limit:UInt32}}"""


Behind = tuple[datetime, str]
"""Where a page ended: when the last run began, and its key."""


class RunRepository:
    """Owns the table; no other class names it."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = {"max_threads": 1, **own_write_reads(ch)}

    async def insert(self, scope: Scope, run: RunEntry, version: int) -> None:
        """Stores a run as it is now; every read that begins later sees it."""
        row = (
            scope.org, scope.namespace, run_key(run.session, run.run_id), run.run_id, *run.session, run.agent,
            run.status.value, run.summary, run.started_at, run.ended_at, run.actor, run.updated_at, version,
        )  # fmt: skip
        await self._ch.insert(TABLE, [row])

    async def one(self, scope: Scope, session: Session, run_id: str) -> RunEntry | None:
        """Returns a run as it was recorded last."""
        parameters = {**in_scope(scope), "key": run_key(session, run_id)}
        rows = await self._ch.query(_ONE, parameters, settings=self._reads)
        return next(iter(_runs(list(rows))), None)

    async def page(self, scope: Scope, wanted: RunFilter, behind: Behind | None, limit: int) -> list[RunEntry]:
        """Returns runs, the one that began last first, and by key."""
        at, key = behind or (datetime.fromtimestamp(0, UTC), "")
        parameters = {
            **in_scope(scope),
            "of_user": wanted.user_id is not None,
            "user_id": wanted.user_id or "",
            "of_session": wanted.session_id is not None,
            "session_id": wanted.session_id or "",
            "agent": wanted.agent,
            "status": wanted.status,
            "is_behind": behind is not None,
            "behind_at": at,
            "behind": key,
            "limit": limit,
        }
        return _runs(list(await self._ch.query(_PAGE, parameters, settings=self._reads)))


def run_key(session: Session, run_id: str) -> str:
    """Returns what names a run among the namespace's."""
    told = json.dumps([*session, run_id]).encode()
    return hashlib.blake2b(told, digest_size=_KEY_BYTES).hexdigest()


def _runs(rows: Sequence[Row]) -> list[RunEntry]:
    return [RunEntry(row[0], Session(row[1], row[2]), row[3], RunStatus(row[4]), *row[5:10]) for row in rows]
