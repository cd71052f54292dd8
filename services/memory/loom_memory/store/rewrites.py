"""The table `memory_embeddings` where vectors of one model take the place of another's."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, own_write_reads
from loom_memory.domain.keys import FIRST_KEY_CHUNK
from loom_memory.domain.memory import Filter, Identity
from loom_memory.domain.vectors import Parts, VectorSpace
from loom_memory.store.columns import IDENTITIES, IDENTITY, KEY_RANGE, KeyRange, key_range_parameters
from loom_memory.store.embeddings import OF_SPACE, TABLE
from loom_memory.store.filters import IN_SCOPE, in_scope, of_owner, shown
from loom_memory.store.key_sql import KEY_ROW, SAYS_WORDS, VALUE_ROW
from loom_memory.store.memories import POINT_READ
from loom_memory.store.versions import Placed

_VERSION: Final = f"({IDENTITY}, version)"
_PLACED: Final = f"{_VERSION} IN {{placed:Array(Tuple(String, String, String, UInt64))}}"
_BEHIND: Final = f"({IDENTITY}) > {{behind:Tuple(String, String, String)}}"
_STAGED: Final = f"{IN_SCOPE} AND embedding_model = {{staged:String}}"
# Vectors that count as written: the served ones, and while a run stages those that it staged.
_WRITTEN: Final = "embedding_model IN {models:Array(String)} AND embedding_dim = {dim:UInt16}"

_SCOPES: Final = """SELECT DISTINCT org, namespace FROM memory
WHERE ({org:String} = '' OR org = {org:String}) AND ({namespace:String} = '' OR namespace = {namespace:String})
    AND NOT has({off:Array(String)}, org)
ORDER BY org, namespace"""

_PRESENT: Final = f"""SELECT countIf({OF_SPACE}), countIf(NOT ({OF_SPACE})),
    countIf(NOT ({OF_SPACE}) AND embedding_dim > 0) FROM memory_embeddings WHERE {VALUE_ROW} AND """

_COLUMNS: Final = f"""SELECT {IDENTITY}, version, max(status), max(invalid_at), max(attestation) FROM memory_embeddings
WHERE {IN_SCOPE} AND ({IDENTITY}) IN {{identities:{IDENTITIES}}} GROUP BY {IDENTITY}, version"""

_CURRENT: Final = f"""SELECT {IDENTITY}, version FROM memory FINAL
WHERE {IN_SCOPE} AND ({IDENTITY}) IN {{identities:{IDENTITIES}}} AND tombstoned_at IS NULL"""

_SHOWN: Final = f"""SELECT DISTINCT {IDENTITY}, version FROM memory_embeddings
WHERE {IN_SCOPE} AND {OF_SPACE} AND {VALUE_ROW} AND ({IDENTITY}) IN {{identities:{IDENTITIES}}}"""

_SUPERSEDED: Final = f"""SELECT DISTINCT {IDENTITY}, version FROM memory_embeddings
WHERE {KEY_RANGE} AND {_BEHIND} AND NOT ({OF_SPACE})
    AND {_VERSION} IN (
        SELECT {IDENTITY}, version FROM memory_embeddings WHERE {KEY_RANGE} AND {OF_SPACE} AND {VALUE_ROW})
ORDER BY {IDENTITY}, version LIMIT {{limit:UInt32}}"""

_REMOVE_SUPERSEDED: Final = f"""ALTER TABLE memory_embeddings DELETE
WHERE {IN_SCOPE} AND NOT ({OF_SPACE}) AND {_PLACED}"""

_STAGED_ANY: Final = f"SELECT count() FROM memory_embeddings WHERE {_STAGED} AND embedding_dim != {{kept_dim:UInt16}}"
_DISCARD: Final = f"ALTER TABLE memory_embeddings DELETE WHERE {_STAGED} AND embedding_dim != {{kept_dim:UInt16}}"

_FAULTY: Final = f"""SELECT count(), countIf(is_faulty) FROM (
    SELECT min(length(embedding)) != {{dim:UInt16}} OR max(length(embedding)) != {{dim:UInt16}}
        OR min(embedding_dim) != {{dim:UInt16}} OR max(embedding_dim) != {{dim:UInt16}}
        OR countIf(arrayExists(x -> NOT isFinite(x), embedding)) > 0
        OR countIf({VALUE_ROW}) != maxIf(chunk, {VALUE_ROW}) + 1 OR uniqExact(chunk) != count()
        OR countIf({KEY_ROW}) != greatest(maxIf(chunk, {KEY_ROW}) + 1, {FIRST_KEY_CHUNK}) - {FIRST_KEY_CHUNK}
        OR minIf(start_offset, {VALUE_ROW}) != 0 AS is_faulty
    FROM memory_embeddings WHERE {_STAGED} AND {KEY_RANGE} GROUP BY {IDENTITY}, version
)"""

_READY: Final = f"""SELECT DISTINCT {IDENTITY}, version FROM memory_embeddings
WHERE {_STAGED} AND {KEY_RANGE} AND {_BEHIND}
    AND {_VERSION} IN (SELECT {IDENTITY}, version FROM memory FINAL WHERE {KEY_RANGE} AND tombstoned_at IS NULL)
    AND {_VERSION} NOT IN (
        SELECT {IDENTITY}, version FROM memory_embeddings WHERE {KEY_RANGE} AND {OF_SPACE} AND {VALUE_ROW})
ORDER BY {IDENTITY}, version LIMIT {{limit:UInt32}}"""

_NAMES: Final = ", ".join(TABLE.column_names)
_RENAMED: Final = _NAMES.replace("embedding_model", "{model:String}")
# In one thread the rows become one block and so one part: shown together, or after a crash not at all.
_ONE_BLOCK: Final = {"max_threads": 1, "max_insert_threads": 1}
_PUBLISH: Final = f"""INSERT INTO memory_embeddings ({_NAMES})
SELECT {_RENAMED} FROM memory_embeddings WHERE {_STAGED} AND {_PLACED}"""

_HAS_AI: Final = "SELECT count() FROM system.functions WHERE name = 'aiEmbed'"


@dataclass(frozen=True, slots=True)
class WaitingText:
    """The current version of a memory that has no vectors of the wanted space, or lacks those of `waits`."""

    scope: Scope
    identity: Identity
    version: int
    text: str
    status: str = ""
    invalid_at: datetime | None = None
    attestation: str = ""
    actor: str = ""
    waits: Parts = Parts.VALUES

    @property
    def placed(self) -> Placed:
        """The memory and the version that this is."""
        return self.identity, self.version


@dataclass(frozen=True, slots=True)
class Present:
    """Rows of vectors in a namespace: of one space, of anything else, and of these those that are no stubs."""

    wanted: int
    others: int
    other_vectors: int


class VectorRewrites:
    """Finds texts whose vectors are missing or old, and moves vectors between models."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = own_write_reads(ch)

    async def scopes(self, org: str = "", namespace: str = "", off: Collection[str] = ()) -> list[Scope]:
        """Returns the namespaces that hold memories, or those of the names that are given, but for those of `off`."""
        parameters = {"org": org, "namespace": namespace, "off": sorted(off)}
        return [Scope(*row) for row in await self._ch.query(_SCOPES, parameters)]

    async def present(self, scope: Scope, wanted: Filter, space: VectorSpace) -> Present:
        """Counts rows of vectors; of the filter only user and session count, and columns without vectors are read."""
        where = of_owner(scope, wanted)
        rows = await self._ch.query(_PRESENT + where.sql, {**where.parameters, **space._asdict()}, settings=self._reads)
        return Present(*rows.rows[0])

    async def waiting(
        self,
        scope: Scope,
        wanted: Filter,
        now: datetime,
        space: VectorSpace,
        parts: Parts = Parts.VALUES,
        *,
        staged: bool = False,
    ) -> int:
        """Counts memories that are shown and lack vectors of the space for these parts, and have none staged either."""
        where = shown(scope, Filter(wanted.user_id, wanted.session_id), now)
        sql = f"""SELECT count() FROM memory FINAL
WHERE {where.sql} AND ({_without_vectors(Parts.VALUES, parts, IN_SCOPE)}
    OR {_without_vectors(Parts.KEYS, parts, IN_SCOPE)})"""
        rows = await self._ch.query(sql, {**where.parameters, **_written(space, staged=staged)}, settings=self._reads)
        return int(rows.scalar())

    async def page(
        self,
        keys: KeyRange,
        behind: Identity,
        now: datetime,
        space: VectorSpace,
        limit: int,
        parts: Parts = Parts.VALUES,
        *,
        staged: bool = False,
    ) -> list[WaitingText]:
        """Returns memories that wait, in order of identity, with what their other rows of vectors say of them."""
        where = shown(keys.scope, Filter(), now)
        sql = f"""SELECT {IDENTITY}, version, value, invalid_at, attestation, actor,
    {_without_vectors(Parts.VALUES, parts, KEY_RANGE)} AS value_waits,
    {_without_vectors(Parts.KEYS, parts, KEY_RANGE)} AS key_waits
FROM memory FINAL
WHERE {where.sql} AND {KEY_RANGE} AND {_BEHIND} AND (value_waits OR key_waits)
ORDER BY {IDENTITY} LIMIT {{limit:UInt32}}"""
        parameters = {**where.parameters, **key_range_parameters(keys), **_written(space, staged=staged)}
        rows = (await self._ch.query(sql, {**parameters, "behind": behind, "limit": limit}, settings=self._reads)).rows
        kept = await self._columns(keys.scope, [Identity(*row[:3]) for row in rows])
        return [
            WaitingText(
                keys.scope,
                identity,
                row[3],
                row[4],
                *kept.get((identity, row[3]), ("", row[5], row[6])),
                row[7],
                waits=waiting_parts(value=row[8], key=row[9]),
            )
            for row in rows
            for identity in [Identity(*row[:3])]
        ]

    async def current(self, scope: Scope, identities: Sequence[Identity]) -> set[Placed]:
        """Returns the current versions of those that are not deleted."""
        parameters = {**in_scope(scope), "identities": list(identities)}
        rows = await self._ch.query(_CURRENT, parameters, settings={**POINT_READ, **self._reads})
        return {(Identity(*row[:3]), row[3]) for row in rows}

    async def shown(self, scope: Scope, space: VectorSpace, identities: Sequence[Identity]) -> set[Placed]:
        """Returns the versions of these whose value has vectors that searches compare."""
        if not identities:
            return set()
        parameters = {**in_scope(scope), **space._asdict(), "identities": list(identities)}
        rows = await self._ch.query(_SHOWN, parameters, settings={**POINT_READ, **self._reads})
        return {(Identity(*row[:3]), row[3]) for row in rows}

    async def superseded(self, keys: KeyRange, behind: Identity, space: VectorSpace, limit: int) -> list[Placed]:
        """Returns versions that have vectors of the space and others beside them."""
        parameters = {**key_range_parameters(keys), **space._asdict(), "behind": behind, "limit": limit}
        rows = await self._ch.query(_SUPERSEDED, parameters, settings=self._reads)
        return [(Identity(*row[:3]), row[3]) for row in rows]

    async def remove_superseded(self, scope: Scope, placed: Sequence[Placed], space: VectorSpace) -> None:
        """Removes what these versions have beside the space, in the background of the store."""
        await self._ch.command(_REMOVE_SUPERSEDED, {**in_scope(scope), **space._asdict(), "placed": _flat(placed)})

    async def discard_staged(self, scope: Scope, space: VectorSpace, *, keep_width: bool = False) -> None:
        """Removes what is staged, all or what is of another width, and returns once it is gone."""
        parameters = {**in_scope(scope), "staged": space.staged, "kept_dim": space.dim if keep_width else 0}
        if (await self._ch.query(_STAGED_ANY, parameters, settings=self._reads)).scalar():
            await self._ch.command(_DISCARD, parameters, settings={"mutations_sync": 2})

    async def faulty(self, keys: KeyRange, space: VectorSpace) -> tuple[int, int]:
        """Returns how many versions are staged, and how many of them not whole, of another width or not finite."""
        parameters = {**key_range_parameters(keys), "staged": space.staged, "dim": space.dim}
        staged, faulty = (await self._ch.query(_FAULTY, parameters, settings=self._reads)).rows[0]
        return staged, faulty

    async def ready(self, keys: KeyRange, behind: Identity, space: VectorSpace, limit: int) -> list[Placed]:
        """Returns current versions that are staged and not shown yet."""
        parameters = {
            **key_range_parameters(keys), **space._asdict(), "staged": space.staged, "behind": behind, "limit": limit,
        }  # fmt: skip
        rows = await self._ch.query(_READY, parameters, settings=self._reads)
        return [(Identity(*row[:3]), row[3]) for row in rows]

    async def publish(self, scope: Scope, placed: Sequence[Placed], space: VectorSpace) -> None:
        """Shows the staged vectors of these versions."""
        parameters = {**in_scope(scope), "model": space.model, "staged": space.staged, "placed": _flat(placed)}
        await self._ch.command(_PUBLISH, parameters, settings={**_ONE_BLOCK, **self._reads})

    async def embeds_itself(self) -> bool:
        """Says whether the database can ask a provider for vectors."""
        return bool((await self._ch.query(_HAS_AI)).scalar())

    async def _columns(
        self, scope: Scope, identities: Sequence[Identity]
    ) -> dict[Placed, tuple[str, datetime | None, str]]:
        if not identities:
            return {}
        rows = await self._ch.query(_COLUMNS, {**in_scope(scope), "identities": list(identities)}, settings=self._reads)
        return {(Identity(*row[:3]), row[3]): (row[4], row[5], row[6]) for row in rows}


def waiting_parts(*, value: bool, key: bool) -> Parts:
    """Returns the parts that wait."""
    return (Parts.VALUES if value else Parts(0)) | (Parts.KEYS if key else Parts(0))


def _without_vectors(part: Parts, wanted: Parts, where: str) -> str:
    """Returns whether a row of `memory` lacks the vectors of one part, where that is among the wanted.

    `where` keeps the rows of vectors to look at.
    """
    if part not in wanted:
        return "false"
    row = VALUE_ROW if part is Parts.VALUES else KEY_ROW
    missing = f"""{_VERSION} NOT IN (
    SELECT {IDENTITY}, version FROM memory_embeddings WHERE {where} AND {_WRITTEN} AND {row})"""
    return missing if part is Parts.VALUES else f"({SAYS_WORDS} AND {missing})"


def _written(space: VectorSpace, *, staged: bool) -> dict[str, object]:
    return {"models": [space.model, space.staged] if staged else [space.model], "dim": space.dim}


def _flat(placed: Sequence[Placed]) -> list[tuple[object, ...]]:
    return [(*identity, version) for identity, version in placed]
