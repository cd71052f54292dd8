"""The table `memory_versions`: every version of every memory."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, Table, own_write_reads
from loom_memory.domain.memory import Content, Filter, Identity, Memory
from loom_memory.store.columns import (
    COLUMNS,
    IDENTITIES,
    IDENTITY,
    KEY_RANGE,
    SELECTED,
    KeyRange,
    key_range_parameters,
    memory_from_row,
    row_from_memory,
)

TABLE: Final = Table("memory_versions", COLUMNS)

_ONE: Final = """org = {org:String} AND namespace = {namespace:String} AND memory_key = {key:String}
    AND user_id = {user_id:String} AND session_id = {session_id:String}"""

# A row of revision 0 withdraws the version of its number.
_WITHDRAWN: Final = f"SELECT version FROM memory_versions WHERE {_ONE} AND revision = 0"

# The versions up to the current one: what is above it belongs to a write that did not end. Of an interrupted write and
# its successor, which has the same revision, the successor counts. An empty value is the claim of a deletion that did
# not end: no memory is empty.
_SHOWN_ONCE: Final = f"""FROM memory_versions WHERE {_ONE}
    AND tombstoned_at IS NULL AND version <= {{current:UInt64}} AND revision > 0
    AND value != '' AND version NOT IN ({_WITHDRAWN})"""
_LAST_OF_REVISION: Final = "ORDER BY revision DESC, version DESC LIMIT 1 BY revision"

# The version that ended the life before this one by its expiry: the next was written when it was no longer shown. The
# frame has to be named, as the default one ends with the row itself; the last row's successor is the year 1970.
_EXPIRED: Final = f"""SELECT max(version) FROM (
    SELECT version, expires_at, leadInFrame(updated_at)
        OVER (ORDER BY revision, version ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS succeeded_at
    FROM (SELECT revision, version, expires_at, updated_at {_SHOWN_ONCE} {_LAST_OF_REVISION})
) WHERE expires_at <= succeeded_at"""

# The versions since the memory was last deleted or expired.
_HISTORY: Final = f"""SELECT {SELECTED} {_SHOWN_ONCE} AND revision < {{below:UInt64}}
    AND version > (SELECT max(version) FROM memory_versions WHERE {_ONE} AND tombstoned_at IS NOT NULL)
    AND version > ({_EXPIRED})
{_LAST_OF_REVISION} LIMIT {{limit:UInt32}}"""

_SINCE_ITS_BEGINNING: Final = f"""{_SHOWN_ONCE}
    AND version > (SELECT max(version) FROM memory_versions WHERE {_ONE} AND tombstoned_at IS NOT NULL)
    AND version > ({_EXPIRED})"""

_COUNT: Final = f"SELECT uniqExact(revision) {_SINCE_ITS_BEGINNING}"

_FIRST: Final = f"SELECT {SELECTED} {_SINCE_ITS_BEGINNING} ORDER BY revision, version DESC LIMIT 1"

# Deleted versions too: they are what a deletion is undone with. An empty value is no version's.
_REVISION: Final = f"""SELECT {SELECTED} FROM memory_versions WHERE {_ONE}
    AND revision > 0 AND value != '' AND version NOT IN ({_WITHDRAWN}) AND version <= {{current:UInt64}}
    AND ({{revision:UInt32}} = 0 OR revision = {{revision:UInt32}})
ORDER BY revision DESC, version DESC LIMIT 1"""

# A key names a memory of the same user and session, of the same user, or of nobody.
_DERIVED: Final = """SELECT memory_key, user_id, session_id, revision FROM memory FINAL
WHERE org = {org:String} AND namespace = {namespace:String} AND has(derived_from, {key:String})
    AND (user_id = {user_id:String} OR {user_id:String} = '')
    AND (session_id = {session_id:String} OR {session_id:String} = '')
    AND ({any_user:Bool} OR user_id = {own_user:String}) AND ({any_session:Bool} OR session_id = {own_session:String})
    AND tombstoned_at IS NULL AND (expires_at IS NULL OR expires_at > {now:DateTime64(3, 'UTC')})
ORDER BY memory_key, user_id, session_id LIMIT {limit:UInt32}"""

_NAMED: Final = f"""org = {{org:String}} AND namespace = {{namespace:String}}
    AND ({IDENTITY}) IN {{identities:{IDENTITIES}}}"""

_CLAIMED: Final = f"""SELECT {IDENTITY}, max(revision), max(version) FROM memory_versions
WHERE {_NAMED} AND revision > 0 AND version >= {{since:UInt64}}
    AND NOT has({{own:Array(UInt64)}}, version)
    AND ({IDENTITY}, version) NOT IN (SELECT {IDENTITY}, version FROM memory_versions WHERE {_NAMED} AND revision = 0)
GROUP BY {IDENTITY} ORDER BY {IDENTITY} LIMIT {{limit:UInt32}}"""

_TOMBSTONE: Final = """ALTER TABLE memory_versions UPDATE tombstoned_at = {now:DateTime64(3, 'UTC')}
WHERE org = {org:String} AND namespace = {namespace:String} AND tombstoned_at IS NULL
    AND arrayExists(gone -> gone.1 = memory_key AND gone.2 = user_id AND gone.3 = session_id AND gone.4 >= version,
        {deleted:Array(Tuple(String, String, String, UInt64))})"""

# The passes of the sweep go by ranges of keys, so that what they hold in memory does not grow with the tables.
_SCOPES: Final = "SELECT org, namespace FROM memory_versions GROUP BY org, namespace ORDER BY org, namespace"

_END_OF_RANGE: Final = f"""SELECT max(memory_key), count() FROM (
    SELECT memory_key FROM memory_versions WHERE {KEY_RANGE} ORDER BY memory_key LIMIT {{limit:UInt32}})"""

# Up to the version of the deletion; a version that was set afterwards stays.
_DELETED: Final = f"""SELECT DISTINCT {IDENTITY}, gone FROM memory_versions
INNER JOIN (
    SELECT {IDENTITY}, version AS gone FROM memory FINAL WHERE {KEY_RANGE} AND tombstoned_at IS NOT NULL
) AS deleted USING ({IDENTITY})
WHERE {KEY_RANGE} AND memory_versions.tombstoned_at IS NULL AND version <= gone
ORDER BY {IDENTITY} LIMIT {{limit:UInt32}}"""

_ORPHANS: Final = f"""SELECT {IDENTITY}, version FROM memory_versions
LEFT JOIN (
    SELECT {IDENTITY}, version AS current FROM memory FINAL WHERE {KEY_RANGE}
) AS held USING ({IDENTITY})
WHERE {KEY_RANGE} AND version < {{before:UInt64}} AND version > current
ORDER BY {IDENTITY}, version LIMIT {{limit:UInt32}}"""

_REMOVE: Final = f"""ALTER TABLE memory_versions DELETE
WHERE org = {{org:String}} AND namespace = {{namespace:String}}
    AND ({IDENTITY}, version) IN {{orphans:Array(Tuple(String, String, String, UInt64))}}"""

Placed = tuple[Identity, int]
"""A memory, and a version of it."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """What others claim of an identity."""

    revision: int
    version: int


class VersionRepository:
    """Owns the table `memory_versions`; no other class writes it."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = own_write_reads(ch)

    async def insert(self, versions: Sequence[Memory]) -> None:
        """Stores versions."""
        await self._ch.insert(TABLE, [row_from_memory(memory) for memory in versions])

    async def history(self, current: Memory, *, below: int, limit: int) -> list[Memory]:
        """Returns the versions of the memory whose current row is given, newest first.

        Args:
            current: The row that is shown now.
            below: Keeps revisions under this one.
            limit: Most versions to return.
        """
        parameters = {**_one(current), "below": below, "limit": limit}
        rows = await self._ch.query(_HISTORY, parameters, settings=self._reads)
        return [memory_from_row(row) for row in rows]

    async def count(self, current: Memory) -> int:
        """Returns how many versions `history` lists of a memory."""
        return int((await self._ch.query(_COUNT, _one(current), settings=self._reads)).scalar())

    async def first(self, current: Memory) -> Memory | None:
        """Returns the oldest version that `history` lists of a memory."""
        rows = await self._ch.query(_FIRST, _one(current), settings=self._reads)
        return next(map(memory_from_row, rows), None)

    async def revision(self, current: Memory, revision: int | None) -> Memory | None:
        """Returns a version of a memory, deleted ones included; None for the last there is.

        Args:
            current: The memory's row, also a deletion's.
            revision: Which; None for the highest.
        """
        rows = await self._ch.query(_REVISION, {**_one(current), "revision": revision or 0}, settings=self._reads)
        return next(map(memory_from_row, rows), None)

    async def derived_from(
        self, scope: Scope, identity: Identity, visible: Filter, now: datetime, limit: int
    ) -> list[tuple[Identity, int]]:
        """Returns the memories that were made of one, with their revisions; of `visible` only its owner counts."""
        parameters = {
            "org": scope.org,
            "namespace": scope.namespace,
            "key": identity.key,
            "user_id": identity.user_id,
            "session_id": identity.session_id,
            "any_user": visible.user_id is None,
            "own_user": visible.user_id or "",
            "any_session": visible.session_id is None,
            "own_session": visible.session_id or "",
            "now": now,
            "limit": limit,
        }
        rows = await self._ch.query(_DERIVED, parameters, settings=self._reads)
        return [(Identity(*row[:3]), row[3]) for row in rows]

    async def claimed(
        self, scope: Scope, identities: Sequence[Identity], own: Sequence[int], since: int
    ) -> dict[Identity, Claimed]:
        """Returns the highest revision and version that others claim, who neither withdrew nor wrote before `since`.

        Args:
            scope: Namespace of the identities.
            identities: Whose versions are read.
            own: Versions that do not count.
            since: Version under which a claim is dead or long settled.
        """
        parameters = {
            "org": scope.org,
            "namespace": scope.namespace,
            "identities": list(identities),
            "own": list(own),
            "since": since,
            "limit": len(identities),
        }
        rows = await self._ch.query(_CLAIMED, parameters, settings=self._reads)
        return {Identity(*row[:3]): Claimed(row[3], row[4]) for row in rows}

    async def withdraw(self, versions: Sequence[Memory]) -> None:
        """Takes versions back that were never current."""
        await self.insert([replace(memory, revision=0, content=Content(value="")) for memory in versions])

    async def tombstone(self, scope: Scope, deleted: Sequence[Placed], now: datetime) -> None:
        """Marks the versions up to each deletion as deleted, in the background of the store."""
        gone = [(*identity, version) for identity, version in deleted]
        await self._ch.command(
            _TOMBSTONE, {"org": scope.org, "namespace": scope.namespace, "deleted": gone, "now": now}
        )

    async def scopes(self) -> list[Scope]:
        """Returns every namespace that has versions."""
        return [Scope(*row) for row in await self._ch.query(_SCOPES)]

    async def range_after(self, scope: Scope, after: str, size: int) -> KeyRange:
        """Returns the range of about `size` versions whose keys come after `after`; the last one has no end."""
        parameters = {**key_range_parameters(KeyRange(scope, after)), "limit": size}
        upto, count = (await self._ch.query(_END_OF_RANGE, parameters)).rows[0]
        return KeyRange(scope, after, upto if count == size else "")

    async def unmarked(self, keys: KeyRange, limit: int) -> list[Placed]:
        """Returns deleted memories of which versions are not marked, with the version of the deletion."""
        rows = await self._ch.query(_DELETED, {**key_range_parameters(keys), "limit": limit})
        return [(Identity(*row[:3]), row[3]) for row in rows]

    async def orphans(self, keys: KeyRange, before: int, limit: int) -> list[Placed]:
        """Returns versions older than `before` whose write did not end."""
        rows = await self._ch.query(_ORPHANS, {**key_range_parameters(keys), "before": before, "limit": limit})
        return [(Identity(*row[:3]), row[3]) for row in rows]

    async def remove(self, scope: Scope, orphans: Sequence[Placed]) -> None:
        """Removes versions, in the background of the store."""
        gone = [(*identity, version) for identity, version in orphans]
        await self._ch.command(_REMOVE, {"org": scope.org, "namespace": scope.namespace, "orphans": gone})


def _one(memory: Memory) -> dict[str, object]:
    return {
        "org": memory.scope.org,
        "namespace": memory.scope.namespace,
        "key": memory.identity.key,
        "user_id": memory.identity.user_id,
        "session_id": memory.identity.session_id,
        "current": memory.version,
    }
