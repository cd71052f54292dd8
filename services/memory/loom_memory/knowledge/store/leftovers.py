"""Rows of versions that no document names: superseded, deleted, or of a write that did not end."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from collections.abc import Mapping, Sequence
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, own_write_reads
from loom_memory.knowledge.store.filters import IN_SCOPE, LIVE_VERSIONS, in_scope

StaleVersion = tuple[str, int]
"""URI of a document and a version of it that is not shown."""

_OF_VERSIONS: Final = ("knowledge_sections", "knowledge_chunks", "knowledge_embeddings")
# A version that was replaced a moment ago is still read by those who began with it, however old it is itself.
_STALE: Final = " UNION DISTINCT ".join(
    f"""SELECT DISTINCT source_uri, version FROM {target}
    WHERE {IN_SCOPE} AND version < {{before:UInt64}} AND (source_uri, version) NOT IN {LIVE_VERSIONS}
        AND source_uri NOT IN (
            SELECT source_uri FROM knowledge_documents WHERE {IN_SCOPE} AND version >= {{before:UInt64}})"""
    for target in _OF_VERSIONS
)
_FOUND: Final = f"SELECT source_uri, version FROM ({_STALE}) ORDER BY source_uri, version LIMIT {{limit:UInt32}}"
_NAMED: Final = f"{IN_SCOPE} AND (source_uri, version) IN {{stale:Array(Tuple(String, UInt64))}}"
_REMOVE: Final = tuple(f"ALTER TABLE {target} DELETE WHERE {_NAMED}" for target in _OF_VERSIONS)
_BELOW: Final = f"""{IN_SCOPE} AND has({{uris:Array(String)}}, source_uri)
    AND version < arrayElement({{belows:Array(UInt64)}}, indexOf({{uris:Array(String)}}, source_uri))"""
_FORGET: Final = tuple(
    f"ALTER TABLE {target} DELETE WHERE {_BELOW}" for target in (*_OF_VERSIONS, "knowledge_versions")
)


class LeftoverRepository:
    """Removes rows that no read shows."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = own_write_reads(ch)

    async def stale(self, scope: Scope, before: int, limit: int) -> list[StaleVersion]:
        """Returns versions that are not shown and have rows, of documents that were last written before `before`."""
        parameters = {**in_scope(scope), "before": before, "limit": limit}
        return [(row[0], row[1]) for row in await self._ch.query(_FOUND, parameters, settings=self._reads)]

    async def remove(self, scope: Scope, stale: Sequence[StaleVersion]) -> None:
        """Removes versions, in the background of the store."""
        for statement in _REMOVE:
            await self._ch.command(statement, {**in_scope(scope), "stale": list(stale)})

    async def forget(self, scope: Scope, deleted: Mapping[str, int]) -> None:
        """Removes every version of deleted documents below their deletions, in the background of the store."""
        parameters = {**in_scope(scope), "uris": list(deleted), "belows": list(deleted.values())}
        for statement in _FORGET:
            await self._ch.command(statement, parameters)
