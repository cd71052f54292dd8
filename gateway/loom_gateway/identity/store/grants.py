"""The table of grants."""

from collections.abc import Collection, Sequence
from typing import Any

from loom_common.auth.claims import Role
from loom_common.clickhouse import ClickHouse, Table, own_write_reads
from loom_gateway.identity.domain.grants import Grant

_TABLE = Table.of(
    "grants",
    quorum=True,
    org="LowCardinality(String)",
    subject="String",
    namespace="String",
    role="LowCardinality(String)",
    updated_at="DateTime64(3, 'UTC')",
    updated_by="String",
    tombstoned_at="Nullable(DateTime64(3, 'UTC'))",
    version="UInt64",
)

_COLUMNS = "org, subject, namespace, role, updated_at, updated_by, tombstoned_at IS NOT NULL, version"

_OF = f"""SELECT {_COLUMNS} FROM grants FINAL
WHERE org = {{org:String}} AND subject IN {{subjects:Array(String)}} ORDER BY subject, namespace"""  # noqa: S608 - column names

_PAGE = f"""SELECT {_COLUMNS} FROM grants FINAL
WHERE org = {{org:String}} AND (subject, namespace) > ({{after_subject:String}}, {{after_namespace:String}})
AND (empty({{subjects:Array(String)}}) OR subject IN {{subjects:Array(String)}})
AND (empty({{namespace:String}}) OR namespace = {{namespace:String}})
AND (namespace IN {{shown:Array(String)}} OR subject IN {{own:Array(String)}}
     OR ({{wide:Bool}} AND namespace NOT IN {{hidden:Array(String)}}))
AND tombstoned_at IS NULL
ORDER BY subject, namespace LIMIT {{limit:UInt32}}"""  # noqa: S608 - column names

_ORGS = """SELECT DISTINCT org FROM grants FINAL
WHERE subject = {subject:String} AND tombstoned_at IS NULL ORDER BY org LIMIT {limit:UInt32}"""


class GrantRepository:
    """Owns the `grants` table; no other class names it."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch

    async def of(self, org: str, subjects: Collection[str]) -> list[Grant]:
        """Returns the grants of these subjects, removed ones included, by subject and namespace."""
        rows = await self._ch.query(_OF, {"org": org, "subjects": sorted(subjects)}, settings=own_write_reads(self._ch))
        return [_grant(row) for row in rows]

    async def page(
        self,
        org: str,
        *,
        after: tuple[str, str],
        limit: int,
        subjects: Sequence[str],
        namespace: str,
        shown: Sequence[str],
        own: Sequence[str],
        hidden: Sequence[str] | None,
    ) -> list[Grant]:
        """Returns live grants by subject and namespace, from behind `after`.

        Args:
            org: Organisation to read.
            after: Subject and namespace behind which the page begins.
            limit: Most grants to return.
            subjects: Keeps these subjects; empty keeps all.
            namespace: Keeps this namespace; empty keeps all.
            shown: Namespaces whose grants the reader sees.
            own: Subjects whose grants the reader sees.
            hidden: Namespaces whose grants the reader does not see though it sees all others; None where it does not.
        """
        parameters = {
            "org": org,
            "after_subject": after[0],
            "after_namespace": after[1],
            "subjects": list(subjects),
            "namespace": namespace,
            "shown": list(shown),
            "own": list(own),
            "wide": hidden is not None,
            "hidden": list(hidden or ()),
            "limit": limit,
        }
        rows = await self._ch.query(_PAGE, parameters, settings=own_write_reads(self._ch))
        return [_grant(row) for row in rows]

    async def orgs_of(self, subject: str, limit: int) -> list[str]:
        """Returns the organisations in which a subject holds something, by name."""
        rows = await self._ch.query(_ORGS, {"subject": subject, "limit": limit}, settings=own_write_reads(self._ch))
        return [str(org) for (org,) in rows]

    async def put(self, grant: Grant) -> None:
        """Stores a grant or its removal; its version is above that of any earlier row of it."""
        removed_at = grant.updated_at if grant.removed else None
        row = (
            grant.org,
            grant.subject,
            grant.namespace,
            grant.role.label,
            grant.updated_at,
            grant.updated_by,
            removed_at,
            grant.version,
        )
        await self._ch.insert(_TABLE, [row])


def _grant(row: Sequence[Any]) -> Grant:  # the columns' own types, which no static type knows
    org, subject, namespace, role, updated_at, updated_by, removed, version = row
    return Grant(org, subject, namespace, Role[role.upper()], updated_at, updated_by, bool(removed), version)
