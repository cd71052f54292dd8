"""The table of what was used once."""

from dataclasses import dataclass
from datetime import datetime

from loom_common.clickhouse import ClickHouse, Table, own_write_reads

_TABLE = Table.of(
    "oauth_uses",
    quorum=True,
    org="LowCardinality(String)",
    use_id="String",
    used_at="DateTime64(3, 'UTC')",
    expires_at="DateTime64(3, 'UTC')",
)

_KNOWN = "SELECT count() FROM oauth_uses WHERE use_id = {use_id:String}"


@dataclass(frozen=True, slots=True)
class Use:
    """One use of a code or a refresh token."""

    org: str
    id: str
    used_at: datetime
    expires_at: datetime
    """From when on it could not be used anyway, so that its row is of no use."""


class UseRepository:
    """Owns the `oauth_uses` table; no other class names it."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch

    async def is_known(self, use_id: str) -> bool:
        """Returns whether something was used."""
        rows = await self._ch.query(_KNOWN, {"use_id": use_id}, settings=own_write_reads(self._ch))
        return any(count > 0 for (count,) in rows)

    async def add(self, use: Use) -> None:
        """Stores one use."""
        await self._ch.insert(_TABLE, [(use.org, use.id, use.used_at, use.expires_at)])
