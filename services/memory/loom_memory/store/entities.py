"""The tables `entities`, `entity_mentions` and `entity_vectors`: who and what memories name."""

# ruff: noqa: S608  (what is put together are constants of this module; every value is bound)

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, Table, own_write_reads
from loom_memory.domain.entities import Entity
from loom_memory.domain.memory import Identity
from loom_memory.domain.vectors import VectorSpace
from loom_memory.store.columns import IDENTITIES, IDENTITY
from loom_memory.store.filters import IN_SCOPE, in_scope

_TIME: Final = "DateTime64(3, 'UTC')"
ENTITIES: Final = Table.of(
    "entities",
    org="LowCardinality(String)",
    namespace="LowCardinality(String)",
    user_id="String",
    entity_id="String",
    name="String",
    kind="LowCardinality(String)",
    aliases="Array(String)",
    folded="Array(String)",
    mention_count="UInt32",
    first_seen_at=_TIME,
    last_seen_at=_TIME,
    tombstoned_at=f"Nullable({_TIME})",
    version="UInt64",
)
MENTIONS: Final = Table.of(
    "entity_mentions",
    org="LowCardinality(String)",
    namespace="LowCardinality(String)",
    memory_key="String",
    user_id="String",
    session_id="String",
    memory_version="UInt64",
    entity_ids="Array(String)",
    tombstoned_at=f"Nullable({_TIME})",
    version="UInt64",
)
VECTORS: Final = Table.of(
    "entity_vectors",
    org="LowCardinality(String)",
    namespace="LowCardinality(String)",
    user_id="String",
    entity_id="String",
    embedding_model="LowCardinality(String)",
    embedding="Array(Float32)",
    embedding_dim="UInt16",
    text="String",
    actor="String",
    tombstoned_at=f"Nullable({_TIME})",
    version="UInt64",
)

LIVE: Final = "tombstoned_at IS NULL"
"""Keeps the rows of all three tables that count."""

_USER: Final = "user_id = {user_id:String}"
_ENTITY: Final = "entity_id, name, kind, aliases, first_seen_at, last_seen_at, mention_count, tombstoned_at, version"

_BY_NAME: Final = f"""SELECT {_ENTITY} FROM entities FINAL
WHERE {IN_SCOPE} AND {_USER} AND {LIVE} AND hasAny(folded, {{names:Array(String)}}) ORDER BY entity_id"""
_BY_ID: Final = f"""SELECT {_ENTITY} FROM entities FINAL
WHERE {IN_SCOPE} AND {_USER} AND entity_id IN {{ids:Array(String)}} ORDER BY entity_id"""

_MENTIONS: Final = f"""SELECT {IDENTITY}, memory_version, entity_ids, tombstoned_at FROM entity_mentions FINAL
WHERE {IN_SCOPE} AND ({IDENTITY}) IN {{identities:{IDENTITIES}}}"""
_MENTIONING: Final = f"""SELECT {IDENTITY}, memory_version, entity_ids, tombstoned_at FROM entity_mentions FINAL
WHERE {IN_SCOPE} AND {_USER} AND {LIVE} AND hasAny(entity_ids, {{ids:Array(String)}})
ORDER BY {IDENTITY} LIMIT {{limit:UInt32}}"""
_COUNTED: Final = f"""SELECT id, count() FROM (
    SELECT arrayJoin(entity_ids) AS id FROM entity_mentions FINAL
    WHERE {IN_SCOPE} AND {_USER} AND {LIVE} AND hasAny(entity_ids, {{ids:Array(String)}})
) WHERE id IN {{ids:Array(String)}} GROUP BY id ORDER BY id"""

# Memories that were written since, deletions among them.
_CHANGED: Final = f"""SELECT {IDENTITY}, version, value, actor, speaker, coalesce(event_time, created_at),
    tombstoned_at IS NULL AND (expires_at IS NULL OR expires_at > {{now:{_TIME}}})
FROM memory FINAL WHERE {IN_SCOPE} AND version > {{after:UInt64}}
ORDER BY version, {IDENTITY} LIMIT {{limit:UInt32}}"""

_ACTIVE: Final = """SELECT org, namespace, max(version) FROM memory WHERE NOT has({off:Array(String)}, org)
GROUP BY org, namespace ORDER BY org, namespace"""

# Of whatever user the caller may read: the leg is given names, and counts of those users alone.
_FOUND: Final = f"""SELECT {IDENTITY}, max(weight) AS sure, max(memory_version) AS newest
FROM entity_mentions AS mentions FINAL
INNER JOIN (
    SELECT user_id, entity_id, 1 / (1 + log(greatest(mention_count, 1))) AS weight FROM entities FINAL
    WHERE {IN_SCOPE} AND {LIVE} AND hasAny(folded, {{names:Array(String)}})
        AND (NOT {{of_user:Bool}} OR {_USER})
) AS named ON mentions.user_id = named.user_id AND has(mentions.entity_ids, named.entity_id)
WHERE {IN_SCOPE} AND mentions.tombstoned_at IS NULL AND (NOT {{of_user:Bool}} OR {_USER})
    AND (NOT {{of_session:Bool}} OR session_id = {{session_id:String}})
GROUP BY {IDENTITY} ORDER BY sure DESC, newest DESC, {IDENTITY} LIMIT {{limit:UInt32}}"""

_NAMES: Final = f"""SELECT DISTINCT arrayJoin(folded) AS name FROM entities FINAL WHERE {IN_SCOPE} AND {LIVE}
ORDER BY name LIMIT {{limit:UInt32}}"""

_SCOPES: Final = f"""SELECT DISTINCT org, namespace FROM entity_vectors
WHERE ({{org:String}} = '' OR org = {{org:String}}) AND ({{namespace:String}} = '' OR namespace = {{namespace:String}})
    AND NOT has({{off:Array(String)}}, org) AND {LIVE} ORDER BY org, namespace"""
_LACKING: Final = (
    f"{IN_SCOPE} AND {LIVE} AND NOT (embedding_model = {{model:String}} AND embedding_dim = {{dim:UInt16}})"
)
_WAITING: Final = f"SELECT count() FROM entity_vectors FINAL WHERE {_LACKING}"
_PAGE: Final = f"""SELECT user_id, entity_id, text, actor, version FROM entity_vectors FINAL
WHERE {_LACKING} AND (user_id, entity_id) > {{behind:Tuple(String, String)}}
    AND NOT has({{held:Array(String)}}, actor)
ORDER BY user_id, entity_id LIMIT {{limit:UInt32}}"""

# What a pass is about to write is younger than the bound, and right again at its end.
_MISCOUNTED: Final = f"""SELECT user_id, entity_id FROM (
    SELECT user_id, entity_id, mention_count FROM entities FINAL
    WHERE {IN_SCOPE} AND {LIVE} AND version < {{before:UInt64}}
) AS held LEFT JOIN (
    SELECT user_id, arrayJoin(entity_ids) AS entity_id, count() AS counted FROM entity_mentions FINAL
    WHERE {IN_SCOPE} AND {LIVE} GROUP BY user_id, entity_id
) AS noted USING (user_id, entity_id)
WHERE mention_count != counted ORDER BY user_id, entity_id LIMIT {{limit:UInt32}}"""

# Notes of memories that are not shown any more and were never read as such: those that have expired, and those whose
# rows an erasure or a purge has removed.
_ORPHANED: Final = f"""SELECT {IDENTITY}, memory_version, entity_ids, tombstoned_at FROM entity_mentions FINAL
WHERE {IN_SCOPE} AND {LIVE} AND notEmpty(entity_ids) AND version < {{before:UInt64}} AND ({IDENTITY}) NOT IN (
    SELECT {IDENTITY} FROM memory FINAL
    WHERE {IN_SCOPE} AND tombstoned_at IS NULL AND (expires_at IS NULL OR expires_at > {{now:{_TIME}}})
) ORDER BY {IDENTITY} LIMIT {{limit:UInt32}}"""
_KNOWN: Final = """SELECT DISTINCT org, namespace FROM entities WHERE NOT has({off:Array(String)}, org)
ORDER BY org, namespace"""
_CURRENT: Final = f"""SELECT user_id, entity_id, version FROM entity_vectors FINAL
WHERE {IN_SCOPE} AND {LIVE} AND (user_id, entity_id) IN {{ids:Array(Tuple(String, String))}}"""


@dataclass(frozen=True, slots=True)
class ChangedMemory:
    """A memory that was written, or deleted, since a worker looked last."""

    identity: Identity
    version: int
    value: str
    actor: str
    speaker: str
    at: datetime
    shown: bool


@dataclass(frozen=True, slots=True)
class Mentions:
    """What one version of a memory names."""

    identity: Identity
    memory_version: int
    entity_ids: tuple[str, ...]
    tombstoned_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class EntityVector:
    """The vector of an entity's names; of width 0 where it is still to come."""

    user_id: str
    entity_id: str
    text: str
    actor: str
    version: int
    model: str = ""
    vector: Sequence[float] = ()
    tombstoned_at: datetime | None = None


class EntityRepository:
    """Owns the tables of entities; no other class writes them."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = own_write_reads(ch)

    async def active(self, off: Collection[str]) -> dict[Scope, int]:
        """Returns the last version written to each namespace, but for organisations that are off."""
        rows = await self._ch.query(_ACTIVE, {"off": sorted(off)}, settings=self._reads)
        return {Scope(row[0], row[1]): row[2] for row in rows}

    async def changed(self, scope: Scope, after: int, now: datetime, limit: int) -> list[ChangedMemory]:
        """Returns memories whose current version is above `after`, oldest version first."""
        parameters = {**in_scope(scope), "after": after, "now": now, "limit": limit}
        rows = await self._ch.query(_CHANGED, parameters, settings=self._reads)
        return [ChangedMemory(Identity(*row[:3]), row[3], row[4], row[5], row[6], row[7], bool(row[8])) for row in rows]

    async def mentions(self, scope: Scope, identities: Sequence[Identity]) -> dict[Identity, Mentions]:
        """Returns what is noted of memories."""
        parameters = {**in_scope(scope), "identities": list(identities)}
        return {
            one.identity: one for one in _mentions(await self._ch.query(_MENTIONS, parameters, settings=self._reads))
        }

    async def mentioning(self, scope: Scope, user_id: str, ids: Collection[str], limit: int) -> list[Mentions]:
        """Returns memories of a user that name any of these entities, in order of identity."""
        parameters = {**in_scope(scope), "user_id": user_id, "ids": sorted(ids), "limit": limit}
        return _mentions(await self._ch.query(_MENTIONING, parameters, settings=self._reads))

    async def counts(self, scope: Scope, user_id: str, ids: Collection[str]) -> dict[str, int]:
        """Returns how many memories of a user name each of these entities; those that none names are left out."""
        parameters = {**in_scope(scope), "user_id": user_id, "ids": sorted(ids)}
        return {row[0]: row[1] for row in await self._ch.query(_COUNTED, parameters, settings=self._reads)}

    async def by_names(self, scope: Scope, user_id: str, names: Collection[str]) -> list[Entity]:
        """Returns entities of a user that have any of these folded names."""
        parameters = {**in_scope(scope), "user_id": user_id, "names": sorted(names)}
        return [_entity(row) for row in await self._ch.query(_BY_NAME, parameters, settings=self._reads)]

    async def by_ids(self, scope: Scope, user_id: str, ids: Collection[str]) -> list[Entity]:
        """Returns entities of a user, deleted ones too."""
        parameters = {**in_scope(scope), "user_id": user_id, "ids": sorted(ids)}
        return [_entity(row) for row in await self._ch.query(_BY_ID, parameters, settings=self._reads)]

    async def put(self, scope: Scope, user_id: str, entities: Sequence[Entity]) -> None:
        """Stores entities, each as the version that it says; of one that is gone nothing but that it is."""
        rows = [_row(scope, user_id, entity) for entity in entities]
        if rows:
            await self._ch.insert(ENTITIES, rows)

    async def note(self, scope: Scope, mentions: Mapping[Mentions, int]) -> None:
        """Stores what memories name, each as the version that it is given."""
        rows = [
            (
                scope.org, scope.namespace, *one.identity, one.memory_version, list(one.entity_ids), one.tombstoned_at,
                version,
            )
            for one, version in mentions.items()
        ]  # fmt: skip
        if rows:
            await self._ch.insert(MENTIONS, rows)

    async def put_vectors(self, scope: Scope, vectors: Sequence[EntityVector]) -> None:
        """Stores vectors of names."""
        rows = [
            (
                scope.org, scope.namespace, one.user_id, one.entity_id, one.model, list(one.vector), len(one.vector),
                one.text, one.actor, one.tombstoned_at, one.version,
            )
            for one in vectors
        ]  # fmt: skip
        if rows:
            await self._ch.insert(VECTORS, rows)

    async def find(
        self, scope: Scope, names: Collection[str], *, user_id: str | None, session_id: str | None, limit: int
    ) -> dict[Identity, float]:
        """Returns memories that name any of these, with a weight over 0 to 1 that is less for what many name."""
        parameters = {
            **in_scope(scope),
            "names": sorted(names),
            "of_user": user_id is not None,
            "user_id": user_id or "",
            "of_session": session_id is not None,
            "session_id": session_id or "",
            "limit": limit,
        }
        return {Identity(*row[:3]): row[3] for row in await self._ch.query(_FOUND, parameters, settings=self._reads)}

    async def names(self, scope: Scope, limit: int) -> list[str]:
        """Returns the folded names that entities of a namespace have, of whatever user."""
        parameters = {**in_scope(scope), "limit": limit}
        return [row[0] for row in await self._ch.query(_NAMES, parameters, settings=self._reads)]

    async def known_scopes(self, off: Collection[str]) -> list[Scope]:
        """Returns namespaces that hold entities, but for organisations that are off."""
        rows = await self._ch.query(_KNOWN, {"off": sorted(off)}, settings=self._reads)
        return [Scope(row[0], row[1]) for row in rows]

    async def miscounted(self, scope: Scope, before: int, limit: int) -> list[tuple[str, str]]:
        """Returns entities, by user and identifier, that tell another number of memories than there are notes of."""
        parameters = {**in_scope(scope), "before": before, "limit": limit}
        return [(row[0], row[1]) for row in await self._ch.query(_MISCOUNTED, parameters, settings=self._reads)]

    async def orphaned(self, scope: Scope, before: int, now: datetime, limit: int) -> list[Mentions]:
        """Returns notes of memories that are not shown any more."""
        parameters = {**in_scope(scope), "before": before, "now": now, "limit": limit}
        return _mentions(await self._ch.query(_ORPHANED, parameters, settings=self._reads))

    async def vector_scopes(self, org: str, namespace: str, off: Collection[str]) -> list[Scope]:
        """Returns namespaces that hold vectors of names, all or those of the names that are given."""
        parameters = {"org": org, "namespace": namespace, "off": sorted(off)}
        return [Scope(row[0], row[1]) for row in await self._ch.query(_SCOPES, parameters, settings=self._reads)]

    async def lacking(self, scope: Scope, space: VectorSpace) -> int:
        """Counts entities without a vector of a space."""
        rows = await self._ch.query(_WAITING, {**in_scope(scope), **space._asdict()}, settings=self._reads)
        return int(rows.scalar())

    async def lacking_page(
        self, scope: Scope, space: VectorSpace, behind: tuple[str, str], limit: int, held: Collection[str] = ()
    ) -> list[EntityVector]:
        """Returns entities without a vector of a space, in order of user and identifier, behind a place.

        Those whose writer is `held` are left out before the limit.
        """
        parameters = {**in_scope(scope), **space._asdict(), "behind": behind, "limit": limit, "held": sorted(held)}
        rows = await self._ch.query(_PAGE, parameters, settings=self._reads)
        return [EntityVector(row[0], row[1], row[2], row[3], row[4]) for row in rows]

    async def vector_versions(self, scope: Scope, ids: Sequence[tuple[str, str]]) -> dict[tuple[str, str], int]:
        """Returns the version of the rows of entities, by user and identifier."""
        rows = await self._ch.query(_CURRENT, {**in_scope(scope), "ids": list(ids)}, settings=self._reads)
        return {(row[0], row[1]): row[2] for row in rows}


def _mentions(rows: Any) -> list[Mentions]:  # Any: rows as the statements select them
    return [Mentions(Identity(*row[:3]), row[3], tuple(row[4]), row[5]) for row in rows]


def _row(scope: Scope, user_id: str, entity: Entity) -> tuple[object, ...]:
    named = entity if entity.tombstoned_at is None else replace(entity, name="", aliases=())
    folded = list(named.folded) if named is entity else []
    return (
        scope.org, scope.namespace, user_id, entity.id, named.name, entity.kind, list(named.aliases), folded,
        entity.mention_count, entity.first_seen_at, entity.last_seen_at, entity.tombstoned_at, entity.version,
    )  # fmt: skip


def _entity(row: Sequence[Any]) -> Entity:  # Any: a row's types are the columns'
    return Entity(row[0], row[1], row[2], tuple(row[3]), row[4], row[5], row[6], row[7], row[8])
