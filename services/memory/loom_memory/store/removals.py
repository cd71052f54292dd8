"""Removing rows of memories from the store's files: for erasures, and for what was deleted long ago.

A row of `memory` hides older ones of the same name that the store has not merged away yet, and a removal works through
the store's files one after another. So older rows go first, and the row that hides them last: in any other order an old
version could be seen for a moment.
"""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, own_write_reads
from loom_common.erasure import IN_ORG, NamedMemory, Subject, bound_in
from loom_memory.domain.memory import Identity, Memory
from loom_memory.store.census import ERASER
from loom_memory.store.columns import IDENTITIES, IDENTITY, SELECTED, memory_from_row
from loom_memory.store.filters import IN_SCOPE, in_scope
from loom_memory.store.versions import Placed

_ERASED: Final = "{memories:Array(Tuple(String, String, String, String))}"
_SUBJECT: Final = f"""{IN_ORG} AND ((user_id = {{user_id:String}} AND {{user_id:String}} != '')
    OR (namespace, memory_key, user_id, session_id) IN {_ERASED})"""

_SHOWN_BEFORE: Final = f"""SELECT {SELECTED} FROM memory FINAL WHERE {_SUBJECT} AND version <= {{upto:UInt64}}
ORDER BY namespace, {IDENTITY} LIMIT {{limit:UInt32}}"""
_REMOVE_HIDDEN: Final = f"ALTER TABLE memory DELETE WHERE {_SUBJECT} AND version <= {{upto:UInt64}}"
_REMOVE_TOMBSTONES: Final = f"""ALTER TABLE memory DELETE
WHERE {_SUBJECT} AND tombstoned_at IS NOT NULL AND actor = '{ERASER}'"""

_OVER: Final = f"""SELECT {IDENTITY}, version FROM memory FINAL
WHERE {IN_SCOPE} AND (tombstoned_at <= {{before:DateTime64(3, 'UTC')}} OR expires_at <= {{before:DateTime64(3, 'UTC')}})
ORDER BY {IDENTITY} LIMIT {{limit:UInt32}}"""
_SCOPES: Final = """SELECT org, namespace FROM memory
WHERE tombstoned_at <= {before:DateTime64(3, 'UTC')} OR expires_at <= {before:DateTime64(3, 'UTC')}
GROUP BY org, namespace ORDER BY org, namespace"""

_PLACED: Final = "{placed:Array(Tuple(String, String, String, UInt64))}"
_NAMED: Final = f"""{IN_SCOPE} AND ({IDENTITY}) IN {{identities:{IDENTITIES}}}"""
_UPTO_PLACED: Final = f"""{_NAMED} AND arrayExists(over -> over.1 = memory_key AND over.2 = user_id
    AND over.3 = session_id AND over.4 >= version, {_PLACED})"""
_PURGE_VERSIONS: Final = f"ALTER TABLE memory_versions DELETE WHERE {_UPTO_PLACED}"
_PURGE_EMBEDDINGS: Final = f"ALTER TABLE memory_embeddings DELETE WHERE {_UPTO_PLACED}"
_PURGE_OLDER: Final = f"""ALTER TABLE memory DELETE WHERE {_UPTO_PLACED} AND ({IDENTITY}, version) NOT IN {_PLACED}"""
_PURGE_LAST: Final = f"ALTER TABLE memory DELETE WHERE {_NAMED} AND ({IDENTITY}, version) IN {_PLACED}"

# A row is gone when the statement returns, on every replica.
_GONE: Final = {"mutations_sync": 2}
_TIMEOUT_S: Final = 270.0


class RemovalRepository:
    """Removes rows of `memory`, `memory_versions` and `memory_embeddings`."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = own_write_reads(ch)

    async def shown_before(self, subject: Subject, limit: int) -> list[Memory]:
        """Returns rows of a subject that are current and no newer than its erasure, deleted ones included."""
        parameters = bound_in(_SHOWN_BEFORE, subject, limit=limit)
        rows = await self._ch.query(_SHOWN_BEFORE, parameters, settings=self._reads)
        return [memory_from_row(row) for row in rows]

    async def remove_hidden(self, subject: Subject) -> None:
        """Removes a subject's rows of `memory`, once tombstones hide them, and then the tombstones."""
        for sql in (_REMOVE_HIDDEN, _REMOVE_TOMBSTONES):
            await self._ch.command(sql, bound_in(sql, subject), settings=_GONE, timeout_s=_TIMEOUT_S)

    async def scopes_with_over(self, before: datetime) -> list[Scope]:
        """Returns the namespaces that may have rows which were deleted or expired before a time."""
        return [Scope(*row) for row in await self._ch.query(_SCOPES, {"before": before})]

    async def over(self, scope: Scope, before: datetime, limit: int) -> list[Placed]:
        """Returns memories that were deleted or expired before a time, with the version that says so."""
        parameters = {**in_scope(scope), "before": before, "limit": limit}
        rows = await self._ch.query(_OVER, parameters, settings=self._reads)
        return [(Identity(*row[:3]), row[3]) for row in rows]

    async def purge(self, scope: Scope, over: Sequence[Placed]) -> None:
        """Removes everything of memories up to these versions, the row that hides the others last."""
        parameters = {
            **in_scope(scope),
            "identities": [identity for identity, _ in over],
            "placed": [(*identity, version) for identity, version in over],
        }
        for sql in (_PURGE_EMBEDDINGS, _PURGE_VERSIONS, _PURGE_OLDER, _PURGE_LAST):
            await self._ch.command(sql, parameters, settings=_GONE, timeout_s=_TIMEOUT_S)


def named(scope: Scope, over: Sequence[Placed]) -> tuple[NamedMemory, ...]:
    """Returns memories as an erasure names them."""
    return tuple(
        NamedMemory(scope.namespace, identity.key, identity.user_id, identity.session_id) for identity, _ in over
    )
