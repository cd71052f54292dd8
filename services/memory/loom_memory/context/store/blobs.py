"""The table `context_blobs`: texts that are parked outside of a context."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, Table, own_write_reads
from loom_memory.context.domain.blobs import Blob
from loom_memory.store.filters import IN_SCOPE, in_scope

_TIME: Final = "DateTime64(3, 'UTC')"
TABLE: Final = Table.of(
    "context_blobs",
    org="LowCardinality(String)",
    namespace="LowCardinality(String)",
    blob_key="String",
    content="String",
    digest="String",
    summary="String",
    user_id="String",
    actor="String",
    created_at=_TIME,
    expires_at=_TIME,
    kept_until=_TIME,
    version="UInt64",
)

LIVE: Final = f"expires_at > {{now:{_TIME}}}"
"""Keeps texts that have not expired. Only under FINAL."""

_COLUMNS: Final = "org, namespace, blob_key, content, digest, summary, user_id, actor, created_at, expires_at"
_ONE: Final = f"{IN_SCOPE} AND blob_key = {{blob_key:String}}"
_LIVE_ONE: Final = f"SELECT {_COLUMNS} FROM context_blobs FINAL WHERE {_ONE} AND {LIVE} ORDER BY blob_key LIMIT 1"
_NEWEST: Final = f"""SELECT digest, summary, user_id, expires_at, kept_until, version FROM context_blobs FINAL
WHERE {_ONE} ORDER BY blob_key LIMIT 1"""


@dataclass(frozen=True, slots=True)
class Parked:
    """What is known of the newest text under a key, without the text.

    Attributes:
        kept_until: When the engine may remove its row.
        version: Number of its row.
    """

    digest: str
    summary: str
    user_id: str
    expires_at: datetime
    kept_until: datetime
    version: int


class BlobRepository:
    """Owns the table; no other class names it."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = {"max_threads": 1, **own_write_reads(ch)}

    async def insert(self, blob: Blob, *, kept_until: datetime, version: int) -> None:
        """Stores a text; every read that begins later sees it.

        Args:
            blob: The text.
            kept_until: When the engine may remove the row: not before any older one of its key, which would be seen
                again then.
            version: Above that of every older one.
        """
        row = (
            blob.scope.org, blob.scope.namespace, blob.key, blob.content, blob.digest, blob.summary, blob.user_id,
            blob.actor, blob.created_at, blob.expires_at, kept_until, version,
        )  # fmt: skip
        await self._ch.insert(TABLE, [row])

    async def get(self, scope: Scope, key: str, now: datetime) -> Blob | None:
        """Returns a text that has not expired."""
        parameters = {**in_scope(scope), "blob_key": key, "now": now}
        row = (await self._ch.query(_LIVE_ONE, parameters, settings=self._reads)).first()
        return None if row is None else Blob(Scope(row[0], row[1]), *row[2:])

    async def newest(self, scope: Scope, key: str) -> Parked | None:
        """Returns what is known of the newest text under a key, an expired one too."""
        parameters = {**in_scope(scope), "blob_key": key}
        row = (await self._ch.query(_NEWEST, parameters, settings=self._reads)).first()
        return None if row is None else Parked(*row)
