"""The table of organisations."""

from loom_common.clickhouse import ClickHouse, Table, own_write_reads
from loom_gateway.identity.domain.orgs import Org

_TABLE = Table.of(
    "orgs",
    quorum=True,
    name="String",
    display_name="String",
    created_at="DateTime64(3, 'UTC')",
    created_by="String",
    updated_at="DateTime64(3, 'UTC')",
    version="UInt64",
)

_COLUMNS = "name, display_name, created_at, created_by, updated_at, version"
_ONE = f"SELECT {_COLUMNS} FROM orgs FINAL WHERE name = {{name:String}}"  # noqa: S608 - column names
_PAGE = f"""SELECT {_COLUMNS} FROM orgs FINAL
WHERE name > {{after:String}} ORDER BY name LIMIT {{limit:UInt32}}"""  # noqa: S608 - column names


class OrgRepository:
    """Owns the `orgs` table; no other class names it."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch

    async def find(self, name: str) -> Org | None:
        """Returns an organisation, or None where nobody made it by name."""
        rows = await self._ch.query(_ONE, {"name": name}, settings=own_write_reads(self._ch))
        return next((Org(*row) for row in rows), None)

    async def page(self, *, after: str, limit: int) -> list[Org]:
        """Returns organisations by name, from behind `after`."""
        rows = await self._ch.query(_PAGE, {"after": after, "limit": limit}, settings=own_write_reads(self._ch))
        return [Org(*row) for row in rows]

    async def put(self, org: Org) -> None:
        """Stores an organisation; its version is above that of any earlier row of it."""
        row = (org.name, org.display_name, org.created_at, org.created_by, org.updated_at, org.version)
        await self._ch.insert(_TABLE, [row])
