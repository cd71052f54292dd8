"""The table of namespaces."""

from collections.abc import Sequence
from typing import Any

from loom_common.clickhouse import ClickHouse, Table, own_write_reads
from loom_common.write_policy import WritePolicy
from loom_gateway.identity.domain.namespaces import Namespace, Traits
from loom_gateway.identity.store.batches import batches

_TABLE = Table.of(
    "namespaces",
    quorum=True,
    org="LowCardinality(String)",
    name="String",
    kind="LowCardinality(String)",
    owner="String",
    restricted="Bool",
    shared="Bool",
    classification="LowCardinality(String)",
    traffic_class="LowCardinality(String)",
    rerank_endpoint="String",
    classifier_endpoint="String",
    llm_cache="Nullable(Bool)",
    daily_cost_cap_usd="Nullable(Float64)",
    write_policy="String",
    created_at="DateTime64(3, 'UTC')",
    created_by="String",
    updated_at="DateTime64(3, 'UTC')",
    version="UInt64",
)

_COLUMNS = ", ".join(name for name in _TABLE.column_names if name != "version")

# The live predicate of this table is `tombstoned_at IS NULL`, read under FINAL.
_NAMED = f"""SELECT {_COLUMNS} FROM namespaces FINAL
WHERE org = {{org:String}} AND name IN {{names:Array(String)}} AND tombstoned_at IS NULL ORDER BY name"""  # noqa: S608 - column names

_OWNED = f"""SELECT {_COLUMNS} FROM namespaces FINAL
WHERE org = {{org:String}} AND owner = {{owner:String}} AND owner != '' AND tombstoned_at IS NULL
ORDER BY created_at, name LIMIT {{limit:UInt32}}"""  # noqa: S608 - column names

_PAGE = f"""SELECT {_COLUMNS} FROM namespaces FINAL
WHERE org = {{org:String}} AND name > {{after:String}} AND name NOT IN {{leading:Array(String)}}
AND (restricted = 0 OR {{restricted_too:Bool}})
AND (empty({{kinds:Array(String)}}) OR kind IN {{kinds:Array(String)}}) AND tombstoned_at IS NULL
ORDER BY name LIMIT {{limit:UInt32}}"""  # noqa: S608 - column names

_RESTRICTED = """SELECT name FROM namespaces FINAL
WHERE org = {org:String} AND restricted AND tombstoned_at IS NULL ORDER BY name"""

_VERSION = "SELECT max(version) FROM namespaces WHERE org = {org:String} AND name = {name:String}"


class NamespaceRepository:
    """Owns the `namespaces` table; no other class names it."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch

    async def named(self, org: str, names: Sequence[str]) -> dict[str, Namespace]:
        """Returns those of `names` that exist, by name."""
        found: dict[str, Namespace] = {}
        for some in batches(names):
            rows = await self._ch.query(_NAMED, {"org": org, "names": some}, settings=own_write_reads(self._ch))
            found.update((space.name, space) for space in map(_namespace, rows))
        return found

    async def owned_by(self, org: str, owner: str, limit: int) -> list[Namespace]:
        """Returns the namespaces that a subject owns, the oldest first, ties by name."""
        rows = await self._ch.query(
            _OWNED, {"org": org, "owner": owner, "limit": limit}, settings=own_write_reads(self._ch)
        )
        return [_namespace(row) for row in rows]

    async def page(
        self,
        org: str,
        *,
        limit: int,
        after: str = "",
        leading: Sequence[str] = (),
        kinds: Sequence[str] = (),
        restricted_too: bool = False,
    ) -> list[Namespace]:
        """Returns namespaces in the order of their names, from behind `after`, without those in `leading`.

        Args:
            org: Organisation to read.
            limit: Most namespaces to return.
            after: Name behind which the page begins; empty for the first page.
            leading: Names that were listed before these.
            kinds: Keeps these kinds; empty keeps all.
            restricted_too: Whether restricted ones are listed.
        """
        parameters = {
            "org": org,
            "after": after,
            "leading": list(leading),
            "kinds": list(kinds),
            "restricted_too": restricted_too,
            "limit": limit,
        }
        rows = await self._ch.query(_PAGE, parameters, settings=own_write_reads(self._ch))
        return [_namespace(row) for row in rows]

    async def restricted_names(self, org: str) -> list[str]:
        """Returns the names of an organisation's restricted namespaces."""
        rows = await self._ch.query(_RESTRICTED, {"org": org}, settings=own_write_reads(self._ch))
        return [str(name) for (name,) in rows]

    async def version(self, org: str, name: str) -> int:
        """Returns the version of the row of that name, a tombstone's too, or 0 where there never was one."""
        rows = await self._ch.query(_VERSION, {"org": org, "name": name}, settings=own_write_reads(self._ch))
        return int(rows.scalar())

    async def put(self, space: Namespace, *, version: int) -> None:
        """Stores a namespace or what it became; `version` is above that of any earlier row of its name."""
        traits = space.traits
        row = (
            space.org,
            space.name,
            space.kind,
            space.owner,
            space.restricted,
            traits.shared,
            traits.classification,
            traits.traffic_class,
            traits.rerank_endpoint,
            traits.classifier_endpoint,
            traits.llm_cache,
            traits.daily_cost_cap_usd,
            traits.write_policy.to_json(),
            space.created_at,
            space.created_by,
            space.updated_at or space.created_at,
            version,
        )
        await self._ch.insert(_TABLE, [row])


def _namespace(row: Sequence[Any]) -> Namespace:  # the columns' own types, which no static type knows
    org, name, kind, owner, restricted, *traits, created_at, created_by, updated_at = row
    return Namespace(org, name, kind, owner, bool(restricted), created_at, created_by, updated_at, _traits(*traits))


def _traits(  # the order of the columns
    shared: bool,
    classification: str,
    traffic_class: str,
    rerank_endpoint: str,
    classifier_endpoint: str,
    llm_cache: bool | None,
    daily_cost_cap_usd: float | None,
    write_policy: str,
) -> Traits:
    cache = None if llm_cache is None else bool(llm_cache)
    return Traits(
        bool(shared),
        classification,
        traffic_class,
        rerank_endpoint,
        classifier_endpoint,
        cache,
        daily_cost_cap_usd,
        WritePolicy.from_json(write_policy),
    )
