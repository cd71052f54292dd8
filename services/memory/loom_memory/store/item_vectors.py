"""The table `item_vectors`: a vector for each section of a profile and for each situation of a procedure."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, Table, own_write_reads
from loom_memory.domain.vectors import VectorSpace
from loom_memory.store.filters import IN_SCOPE, in_scope

_TIME: Final = "DateTime64(3, 'UTC')"
TABLE: Final = Table.of(
    "item_vectors",
    org="LowCardinality(String)",
    namespace="LowCardinality(String)",
    plane="LowCardinality(String)",
    item_id="String",
    user_id="String",
    agent="String",
    embedding_model="LowCardinality(String)",
    embedding="Array(Float32)",
    embedding_dim="UInt16",
    text="String",
    actor="String",
    updated_at=_TIME,
    tombstoned_at=f"Nullable({_TIME})",
    version="UInt64",
)

LIVE: Final = "tombstoned_at IS NULL"
"""Keeps the rows that count."""

_PLACE: Final = "plane, item_id"
_OF_MODEL: Final = "embedding_model = {model:String} AND embedding_dim = {dim:UInt16}"
_NEAREST: Final = f"""SELECT item_id, 1 - cosineDistance(embedding, {{query:Array(Float32)}}) AS near
FROM item_vectors FINAL
WHERE {IN_SCOPE} AND plane = {{plane:String}} AND {LIVE} AND {_OF_MODEL}
    AND (NOT {{of_users:Bool}} OR has({{users:Array(String)}}, user_id))
    AND (NOT {{of_agents:Bool}} OR has({{agents:Array(String)}}, agent)) AND startsWith(item_id, {{within:String}})
    AND near >= {{least:Float64}}
ORDER BY near DESC, item_id LIMIT {{limit:UInt32}}"""
_SIMILAR: Final = f"""SELECT item_id, 1 - cosineDistance(embedding, {{query:Array(Float32)}})
FROM item_vectors FINAL
WHERE {IN_SCOPE} AND plane = {{plane:String}} AND item_id IN {{ids:Array(String)}} AND {LIVE} AND {_OF_MODEL}"""
_SCOPES: Final = f"""SELECT DISTINCT org, namespace FROM item_vectors
WHERE ({{org:String}} = '' OR org = {{org:String}}) AND ({{namespace:String}} = '' OR namespace = {{namespace:String}})
    AND NOT has({{off:Array(String)}}, org) AND {LIVE} ORDER BY org, namespace"""
_LACKING: Final = f"{IN_SCOPE} AND {LIVE} AND NOT ({_OF_MODEL})"
_WAITING: Final = f"SELECT count() FROM item_vectors FINAL WHERE {_LACKING}"
_PAGE: Final = f"""SELECT {_PLACE}, user_id, agent, text, actor, updated_at, version FROM item_vectors FINAL
WHERE {_LACKING} AND ({_PLACE}) > {{behind:Tuple(String, String)}}
ORDER BY {_PLACE} LIMIT {{limit:UInt32}}"""
_CURRENT: Final = f"""SELECT {_PLACE}, user_id, agent, text, actor, updated_at, version FROM item_vectors FINAL
WHERE {IN_SCOPE} AND {LIVE} AND ({_PLACE}) IN {{places:Array(Tuple(String, String))}}"""

Place = tuple[str, str]


@dataclass(frozen=True, slots=True)
class ItemVector:
    """The vector of one item; of width 0 where it is still to come.

    Attributes:
        plane: `profile` or `procedure`.
        text: What is embedded.
    """

    plane: str
    item_id: str
    user_id: str
    agent: str
    text: str
    actor: str
    updated_at: datetime
    version: int
    model: str = ""
    vector: Sequence[float] = ()
    tombstoned_at: datetime | None = None


class ItemVectorRepository:
    """Owns the table; no other class names it."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = {"max_threads": 1, **own_write_reads(ch)}

    async def put(self, scope: Scope, vectors: Sequence[ItemVector]) -> None:
        """Stores vectors; the newest version of an item counts."""
        rows = [
            (
                scope.org, scope.namespace, one.plane, one.item_id, one.user_id, one.agent, one.model,
                list(one.vector), len(one.vector), one.text, one.actor, one.updated_at, one.tombstoned_at, one.version,
            )
            for one in vectors
        ]  # fmt: skip
        if rows:
            await self._ch.insert(TABLE, rows)

    async def nearest(
        self,
        scope: Scope,
        plane: str,
        space: VectorSpace,
        query: Sequence[float],
        *,
        users: Collection[str] | None,
        agents: Collection[str] | None,
        least: float,
        limit: int,
        within: str = "",
    ) -> dict[str, float]:
        """Returns the items nearest to a vector, nearest first, by their identifiers; None keeps every user or agent.

        `within` is what the identifiers begin with.

        Shapes: `query` float [dim], of unit length. Units: cosine.
        """
        parameters = {
            **in_scope(scope),
            **space._asdict(),
            "plane": plane,
            "query": list(query),
            "of_users": users is not None,
            "users": sorted(users or ()),
            "of_agents": agents is not None,
            "agents": sorted(agents or ()),
            "least": least,
            "limit": limit,
            "within": within,
        }
        return {row[0]: float(row[1]) for row in await self._ch.query(_NEAREST, parameters, settings=self._reads)}

    async def similarities(
        self, scope: Scope, plane: str, space: VectorSpace, query: Sequence[float], ids: Collection[str]
    ) -> dict[str, float]:
        """Returns the cosine of items with a vector; one without a vector of the space is left out."""
        parameters = {**in_scope(scope), **space._asdict(), "plane": plane, "query": list(query), "ids": sorted(ids)}
        return {row[0]: float(row[1]) for row in await self._ch.query(_SIMILAR, parameters, settings=self._reads)}

    async def scopes(self, org: str, namespace: str, off: Collection[str]) -> list[Scope]:
        """Returns namespaces that hold items, all or those of the names that are given."""
        parameters = {"org": org, "namespace": namespace, "off": sorted(off)}
        return [Scope(row[0], row[1]) for row in await self._ch.query(_SCOPES, parameters, settings=self._reads)]

    async def lacking(self, scope: Scope, space: VectorSpace) -> int:
        """Counts items without a vector of a space."""
        rows = await self._ch.query(_WAITING, {**in_scope(scope), **space._asdict()}, settings=self._reads)
        return int(rows.scalar())

    async def lacking_page(self, scope: Scope, space: VectorSpace, behind: Place, limit: int) -> list[ItemVector]:
        """Returns items without a vector of a space, in order of plane and identifier, behind a place."""
        parameters = {**in_scope(scope), **space._asdict(), "behind": behind, "limit": limit}
        return [ItemVector(*row) for row in await self._ch.query(_PAGE, parameters, settings=self._reads)]

    async def current(self, scope: Scope, places: Sequence[Place]) -> dict[Place, ItemVector]:
        """Returns the live rows of items."""
        rows = await self._ch.query(_CURRENT, {**in_scope(scope), "places": list(places)}, settings=self._reads)
        return {(row[0], row[1]): ItemVector(*row) for row in rows}
