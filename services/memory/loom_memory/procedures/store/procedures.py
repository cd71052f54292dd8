"""The tables `procedures` and `procedure_outcomes`."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, Row, Table, own_write_reads
from loom_memory.domain.analyzer import analyze_text
from loom_memory.procedures.domain.procedures import Kind, Procedure
from loom_memory.store.filters import IN_SCOPE, in_scope

_TIME: Final = "DateTime64(3, 'UTC')"
TABLE: Final = Table.of(
    "procedures",
    org="LowCardinality(String)",
    namespace="LowCardinality(String)",
    procedure_id="String",
    revision="UInt32",
    kind="LowCardinality(String)",
    situation="String",
    body="String",
    agent="String",
    user_id="String",
    evidence="Array(Tuple(String, String, String))",
    term_ids="Array(UInt32)",
    actor="String",
    created_at=_TIME,
    updated_at=_TIME,
    tombstoned_at=f"Nullable({_TIME})",
    version="UInt64",
)
OUTCOMES: Final = Table.of(
    "procedure_outcomes",
    org="LowCardinality(String)",
    namespace="LowCardinality(String)",
    procedure_id="String",
    outcome_id="String",
    succeeded="Bool",
    actor="String",
    recorded_at=_TIME,
    version="UInt64",
)

LIVE: Final = "tombstoned_at IS NULL"
"""Keeps procedures that are there."""

_COLUMNS: Final = (
    "procedure_id, kind, situation, body, user_id, agent, revision, actor, created_at, updated_at, tombstoned_at, "
    "version"
)
_OF_USERS: Final = "(NOT {of_users:Bool} OR has({users:Array(String)}, user_id))"
_ONE: Final = f"""SELECT {_COLUMNS} FROM procedures FINAL
WHERE {IN_SCOPE} AND procedure_id = {{id:String}} ORDER BY procedure_id LIMIT 1"""
_BY_ID: Final = f"""SELECT {_COLUMNS} FROM procedures FINAL
WHERE {IN_SCOPE} AND procedure_id IN {{ids:Array(String)}} AND {LIVE} ORDER BY procedure_id"""
_PAGE: Final = f"""SELECT {_COLUMNS} FROM procedures FINAL
WHERE {IN_SCOPE} AND {LIVE} AND procedure_id > {{behind:String}} AND {_OF_USERS}
    AND ({{kind:String}} = '' OR kind = {{kind:String}})
ORDER BY procedure_id LIMIT {{limit:UInt32}}"""
_WITH_WORDS: Final = f"""SELECT {_COLUMNS} FROM procedures FINAL
WHERE {IN_SCOPE} AND {LIVE} AND {_OF_USERS} AND hasAny(term_ids, {{terms:Array(UInt32)}})
ORDER BY length(arrayIntersect(term_ids, {{terms:Array(UInt32)}})) DESC, procedure_id LIMIT {{limit:UInt32}}"""
_COUNTS: Final = f"""SELECT procedure_id, count(), countIf(succeeded) FROM procedure_outcomes FINAL
WHERE {IN_SCOPE} AND procedure_id IN {{ids:Array(String)}}
    AND recorded_at >= {{since:Array({_TIME})}}[indexOf({{ids:Array(String)}}, procedure_id)]
GROUP BY procedure_id ORDER BY procedure_id"""


class ProcedureRepository:
    """Owns both tables; no other class names them."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = {"max_threads": 1, **own_write_reads(ch)}

    async def insert(self, scope: Scope, one: Procedure, version: int) -> None:
        """Stores a procedure as it is now; every read that begins later sees it."""
        terms = [] if one.is_removed else analyze_text(one.situation).term_ids
        await self._ch.insert(
            TABLE,
            [
                (
                    scope.org, scope.namespace, one.id, one.version, one.kind.value, one.situation, one.body, one.agent,
                    one.user_id, [], terms, one.actor, one.created_at, one.updated_at,
                    one.updated_at if one.is_removed else None, version,
                )
            ],
        )  # fmt: skip

    async def record(
        self, scope: Scope, procedure_id: str, outcome_id: str, actor: str, at: datetime, version: int, *, ok: bool
    ) -> None:
        """Stores what came of one use."""
        await self._ch.insert(
            OUTCOMES, [(scope.org, scope.namespace, procedure_id, outcome_id, ok, actor, at, version)]
        )

    async def newest(self, scope: Scope, procedure_id: str) -> Procedure | None:
        """Returns a procedure as it is now, one that was deleted too, without its counts."""
        rows = await self._ch.query(_ONE, {**in_scope(scope), "id": procedure_id}, settings=self._reads)
        return next(iter(_procedures(list(rows))), None)

    async def by_ids(self, scope: Scope, ids: Collection[str]) -> list[Procedure]:
        """Returns procedures that are there."""
        if not ids:
            return []
        rows = await self._ch.query(_BY_ID, {**in_scope(scope), "ids": sorted(ids)}, settings=self._reads)
        return _procedures(list(rows))

    async def page(
        self, scope: Scope, behind: str, users: Collection[str] | None, kind: str, limit: int
    ) -> list[Procedure]:
        """Returns procedures behind an identifier, in their order; None keeps every user's."""
        parameters = {**in_scope(scope), "behind": behind, **_users(users), "kind": kind, "limit": limit}
        return _procedures(list(await self._ch.query(_PAGE, parameters, settings=self._reads)))

    async def with_words(
        self, scope: Scope, terms: Collection[int], users: Collection[str] | None, limit: int
    ) -> list[Procedure]:
        """Returns procedures whose situation holds any of these terms, those with most of them first."""
        parameters = {**in_scope(scope), "terms": sorted(terms), **_users(users), "limit": limit}
        return _procedures(list(await self._ch.query(_WITH_WORDS, parameters, settings=self._reads)))

    async def counts(self, scope: Scope, procedures: Collection[Procedure]) -> dict[str, tuple[int, int]]:
        """Returns uses and successes of procedures by identifier; one that was never used is left out.

        What came of one that was deleted is not counted for the one that took its name.
        """
        if not procedures:
            return {}
        since = {one.id: one.created_at for one in procedures}
        parameters = {**in_scope(scope), "ids": list(since), "since": list(since.values())}
        rows = await self._ch.query(_COUNTS, parameters, settings=self._reads)
        return {row[0]: (int(row[1]), int(row[2])) for row in rows}


def _users(users: Collection[str] | None) -> dict[str, object]:
    return {"of_users": users is not None, "users": sorted(users or ())}


def _procedures(rows: Sequence[Row]) -> list[Procedure]:
    return [
        Procedure(
            row[0],
            Kind(row[1]),
            row[2],
            row[3],
            row[4],
            row[5],
            row[6],
            row[7],
            row[8],
            row[9],
            is_removed=row[10] is not None,
            row_version=row[11],
        )
        for row in rows
    ]
