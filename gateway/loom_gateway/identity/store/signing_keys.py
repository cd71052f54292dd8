"""The table of keys that sign tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from loom_common.clickhouse import ClickHouse, Table, own_write_reads
from loom_common.resealing import SealedRow

_TABLE = Table.of(
    "signing_keys",
    quorum=True,
    kid="String",
    kind="LowCardinality(String)",
    sealed_private="String",
    created_at="DateTime64(3, 'UTC')",
    retired_at="Nullable(DateTime64(3, 'UTC'))",
    version="UInt64",
)

_OF_KIND = """SELECT kid, kind, sealed_private, created_at, retired_at FROM signing_keys FINAL
WHERE kind = {kind:String} ORDER BY created_at, kid"""

# The record that proves the secret comes last.
_SEALED = """SELECT kid, kind, sealed_private, created_at, retired_at, version FROM signing_keys FINAL
WHERE sealed_private != '' ORDER BY kind = 'root', created_at, kid"""

_VERSION = "SELECT max(version) FROM signing_keys WHERE kid = {kid:String}"


@dataclass(frozen=True, slots=True)
class StoredKey:
    """One key as it is kept; `sealed_private` opens under the deployment's secret for the name `kid`."""

    kid: str
    kind: str
    sealed_private: str
    created_at: datetime
    retired_at: datetime | None


class SigningKeyRepository:
    """Owns the `signing_keys` table; no other class names it."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch

    async def of_kind(self, kind: str) -> list[StoredKey]:
        """Returns the keys of one kind, the oldest first, retired ones included."""
        rows = await self._ch.query(_OF_KIND, {"kind": kind}, settings=own_write_reads(self._ch))
        return [StoredKey(*row) for row in rows]

    async def sealed_rows(self) -> Sequence[SealedRow]:
        """See `SealedTable.sealed_rows`. The record that proves the secret comes last."""
        rows = await self._ch.query(_SEALED, settings=own_write_reads(self._ch))
        return [SealedRow(kid, sealed, version) for kid, _, sealed, _, _, version in rows]

    async def put_resealed(self, row: SealedRow, sealed: str) -> bool:
        """See `SealedTable.put_resealed`."""
        rows = await self._ch.query(_SEALED, settings=own_write_reads(self._ch))
        for kid, kind, held, created_at, retired_at, version in rows:
            if (kid, held) == (row.name, row.sealed):
                await self.add(StoredKey(kid, kind, sealed, created_at, retired_at), version + 1)
                return True
        return False

    async def version(self, kid: str) -> int:
        """Returns the version of a row, or 0 where there is none."""
        rows = await self._ch.query(_VERSION, {"kid": kid}, settings=own_write_reads(self._ch))
        return int(rows.scalar())

    async def add(self, key: StoredKey, version: int) -> None:
        """Stores a key, or with a larger version a new state of one."""
        row = (key.kid, key.kind, key.sealed_private, key.created_at, key.retired_at, version)
        await self._ch.insert(_TABLE, [row])
