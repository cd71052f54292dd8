"""The table of what was ended before its time; rows are only added."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from loom_common.auth.revocations import Revocation
from loom_common.clickhouse import ClickHouse, Table, own_write_reads
from loom_gateway.identity.store.batches import batches

_TABLE = Table.of(
    "revoked_tokens",
    quorum=True,
    kind="LowCardinality(String)",
    org="LowCardinality(String)",
    id="String",
    revoked_at="DateTime64(3, 'UTC')",
    revoked_by="String",
    expires_at="DateTime64(3, 'UTC')",
)

# Source: chosen; a read that takes longer than this is as good as none when it is due every half second.
_READ_TIMEOUT_S = 5.0

# `recorded_at` is filled by the database, whose clock does not depend on which gateway wrote.
_SINCE = """SELECT kind, id, revoked_at, org, expires_at, recorded_at FROM revoked_tokens
WHERE recorded_at >= {since:DateTime64(3, 'UTC')} AND expires_at > {now:DateTime64(3, 'UTC')}
ORDER BY recorded_at, kind, org, id"""

_OF = """SELECT kind, id, revoked_at, org FROM revoked_tokens
WHERE org IN ({org:String}, '') AND id IN {ids:Array(String)} ORDER BY revoked_at, kind, id"""


@dataclass(frozen=True, slots=True)
class RecordedRevocation:
    """One row.

    Attributes:
        revocation: What ends.
        expires_at: When everything that it ends has expired by itself.
        recorded_at: When the database took it.
    """

    revocation: Revocation
    expires_at: datetime
    recorded_at: datetime


class RevocationRepository:
    """Owns the `revoked_tokens` table; no other class names it."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch

    async def add(self, revocation: Revocation, *, revoked_at: datetime, expires_at: datetime, revoked_by: str) -> None:
        """Stores a revocation; `expires_at` is when everything that it ends has expired by itself."""
        row = (
            revocation.kind,
            revocation.org,
            revocation.id,
            revoked_at,
            revoked_by,
            expires_at,
        )
        await self._ch.insert(_TABLE, [row])

    async def since(self, since: datetime, now: datetime) -> list[RecordedRevocation]:
        """Returns the revocations recorded from `since` on that still end something at `now`, in that order."""
        rows = await self._ch.query(
            _SINCE, {"since": since, "now": now}, settings=own_write_reads(self._ch), timeout_s=_READ_TIMEOUT_S
        )
        return [
            RecordedRevocation(Revocation(kind, name, revoked_at.timestamp(), org), expires_at, recorded_at)
            for kind, name, revoked_at, org, expires_at, recorded_at in rows
        ]

    async def of(self, org: str, ids: Collection[str]) -> list[Revocation]:
        """Returns the revocations of any of these identifiers that hold in `org`, those of one the oldest first."""
        revocations: list[Revocation] = []
        for some in batches(sorted(ids)):
            rows = await self._ch.query(_OF, {"org": org, "ids": some}, settings=own_write_reads(self._ch))
            revocations += (Revocation(kind, name, at.timestamp(), found) for kind, name, at, found in rows)
        return revocations
