"""The table of switches over calls to models."""

from loom_common.clickhouse import ClickHouse, Table, own_write_reads
from loom_gateway.identity.domain.model_calls import ModelCalls

_TABLE = Table.of(
    "org_model_calls",
    quorum=True,
    org="LowCardinality(String)",
    enabled="Bool",
    updated_at="DateTime64(3, 'UTC')",
    updated_by="String",
    version="UInt64",
)

# Source: as that of revocations: a reading that is due every few seconds and takes longer is as good as none.
_READ_TIMEOUT_S = 5.0

_COLUMNS = "org, enabled, updated_at, updated_by, version"
_ALL = f"SELECT {_COLUMNS} FROM org_model_calls FINAL ORDER BY org"  # noqa: S608 - column names
_ONE = f"SELECT {_COLUMNS} FROM org_model_calls FINAL WHERE org = {{org:String}}"  # noqa: S608 - column names


class ModelCallsRepository:
    """Owns the `org_model_calls` table; no other class names it."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch

    async def all(self) -> list[ModelCalls]:
        """Returns every switch that was ever turned, by organisation."""
        rows = await self._ch.query(_ALL, settings=own_write_reads(self._ch), timeout_s=_READ_TIMEOUT_S)
        return [ModelCalls(*row) for row in rows]

    async def of(self, org: str) -> ModelCalls:
        """Returns an organisation's switch; on, and of version 0, where nobody turned it."""
        rows = await self._ch.query(_ONE, {"org": org}, settings=own_write_reads(self._ch))
        return next((ModelCalls(*row) for row in rows), ModelCalls(org))

    async def put(self, switch: ModelCalls) -> None:
        """Stores a switch; its version is above that of any earlier row of its organisation."""
        row = (switch.org, switch.enabled, switch.updated_at, switch.updated_by, switch.version)
        await self._ch.insert(_TABLE, [row])
