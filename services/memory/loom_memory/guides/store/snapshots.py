"""The table `namespace_snapshots`: what was computed of namespaces, once for each span of time."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, Table, own_write_reads
from loom_memory.store.filters import IN_SCOPE, in_scope

TABLE: Final = Table.of(
    "namespace_snapshots",
    org="LowCardinality(String)",
    namespace="LowCardinality(String)",
    kind="LowCardinality(String)",
    bucket="UInt64",
    body="String",
    users="Array(String)",
    memory_keys="Array(String)",
    computed_at="DateTime64(3, 'UTC')",
    version="UInt64",
)

# Of two that were computed at once the first counts, for every reader and from then on.
_LATEST: Final = f"""SELECT kind, bucket, body FROM namespace_snapshots
WHERE {IN_SCOPE} AND has({{kinds:Array(String)}}, kind) AND bucket <= {{upto:UInt64}} AND bucket >= {{since:UInt64}}
ORDER BY kind, bucket DESC, version LIMIT 1 BY kind LIMIT {{limit:UInt32}}"""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was computed of one kind in one span of time.

    Attributes:
        kind: What was computed.
        bucket: Number of the span, counted in its length.
        body: What was found, as JSON.
    """

    kind: str
    bucket: int
    body: str


class SnapshotRepository:
    """Owns the table; no other class names it."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = {"max_threads": 1, **own_write_reads(ch)}

    async def insert(
        self,
        scope: Scope,
        snapshot: Snapshot,
        *,
        users: Sequence[str],
        keys: Sequence[str],
        computed_at: datetime,
        version: int,
    ) -> None:
        """Stores what was computed, with the users and the keys that it names."""
        row = (
            scope.org, scope.namespace, snapshot.kind, snapshot.bucket, snapshot.body, sorted(set(users)),
            sorted(set(keys)), computed_at, version,
        )  # fmt: skip
        await self._ch.insert(TABLE, [row])

    async def latest(self, scope: Scope, kinds: Sequence[str], since: int, upto: int) -> dict[str, Snapshot]:
        """Returns the latest of each kind within some spans, ends in; the first of its span where several are."""
        parameters = {**in_scope(scope), "kinds": list(kinds), "since": since, "upto": upto, "limit": len(kinds)}
        rows = await self._ch.query(_LATEST, parameters, settings=self._reads)
        return {row[0]: Snapshot(*row) for row in rows}
