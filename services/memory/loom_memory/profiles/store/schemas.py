"""The table `profile_schemas`: every version of the schemas of namespaces' profiles."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from collections.abc import Collection
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, Table, own_write_reads
from loom_memory.profiles.domain.schemas import ProfileSchema, fields_from_json, fields_to_json
from loom_memory.store.filters import IN_SCOPE, in_scope

TABLE: Final = Table.of(
    "profile_schemas",
    org="LowCardinality(String)",
    namespace="LowCardinality(String)",
    revision="UInt32",
    fields="String",
    closed="Bool",
    actor="String",
    updated_at="DateTime64(3, 'UTC')",
    version="UInt64",
)
_NEWEST: Final = f"""SELECT fields, closed, revision, actor, updated_at FROM profile_schemas FINAL
WHERE {IN_SCOPE} ORDER BY revision DESC LIMIT 1"""
_SCOPES: Final = """SELECT org, namespace FROM (
    SELECT org, namespace, argMax(fields, revision) AS held FROM profile_schemas FINAL
    WHERE NOT has({off:Array(String)}, org) GROUP BY org, namespace
) WHERE held != '[]' ORDER BY org, namespace"""


class SchemaRepository:
    """Owns the table; no other class names it."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = {"max_threads": 1, **own_write_reads(ch)}

    async def insert(self, schema: ProfileSchema, version: int) -> None:
        """Stores a version; every read that begins later sees it."""
        await self._ch.insert(
            TABLE,
            [
                (
                    schema.scope.org, schema.scope.namespace, schema.version, fields_to_json(schema.fields),
                    schema.is_closed, schema.actor, schema.updated_at, version,
                )
            ],
        )  # fmt: skip

    async def newest(self, scope: Scope) -> ProfileSchema | None:
        """Returns the newest version, a removal too; None where there never was one."""
        row = (await self._ch.query(_NEWEST, in_scope(scope), settings=self._reads)).first()
        if row is None:
            return None
        return ProfileSchema(scope, fields_from_json(row[0]), bool(row[1]), row[2], row[3], row[4])

    async def scopes(self, off: Collection[str]) -> list[Scope]:
        """Returns namespaces with a schema, but for organisations that are off."""
        rows = await self._ch.query(_SCOPES, {"off": sorted(off)}, settings=self._reads)
        return [Scope(row[0], row[1]) for row in rows]
