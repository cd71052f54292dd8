"""The table `knowledge_embeddings` where vectors of one model take the place of another's, or are missing."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, own_write_reads
from loom_memory.domain.vectors import VectorSpace
from loom_memory.knowledge.domain.chunks import ChunkPlace
from loom_memory.knowledge.store.chunks import PLACE, PLACES
from loom_memory.knowledge.store.embeddings import OF_SPACE, TABLE
from loom_memory.knowledge.store.filters import IN_SCOPE, LIVE, LIVE_VERSIONS, in_scope

_SHOWN: Final = f"(source_uri, version) IN {LIVE_VERSIONS}"
_STAGED: Final = f"{IN_SCOPE} AND embedding_model = {{staged:String}}"
# Vectors that count as written: the served ones, and while a run stages those that it staged.
_WRITTEN: Final = f"""SELECT {PLACE} FROM knowledge_embeddings
    WHERE {IN_SCOPE} AND embedding_model IN {{models:Array(String)}} AND embedding_dim = {{dim:UInt16}}"""
_WAITING: Final = f"""SELECT count() FROM knowledge_chunks
WHERE {IN_SCOPE} AND {_SHOWN} AND ({PLACE}) NOT IN ({_WRITTEN})"""
_PAGE: Final = f"""SELECT {PLACE}, breadcrumb, text, actor FROM knowledge_chunks
INNER JOIN (SELECT source_uri, version, actor FROM knowledge_documents FINAL WHERE {IN_SCOPE} AND {LIVE}) AS shown
    USING (source_uri, version)
WHERE {IN_SCOPE} AND ({PLACE}) NOT IN ({_WRITTEN}) AND ({PLACE}) > {{behind:Tuple(String, UInt64, UInt32)}}
ORDER BY {PLACE} LIMIT {{limit:UInt32}}"""
_CURRENT: Final = f"""SELECT {PLACE} FROM knowledge_chunks
WHERE {IN_SCOPE} AND ({PLACE}) IN {{places:{PLACES}}} AND {_SHOWN}"""
_STAGED_ANY: Final = (
    f"SELECT count() FROM knowledge_embeddings WHERE {_STAGED} AND embedding_dim != {{kept_dim:UInt16}}"
)
_DISCARD: Final = f"ALTER TABLE knowledge_embeddings DELETE WHERE {_STAGED} AND embedding_dim != {{kept_dim:UInt16}}"
_FAULTY: Final = f"""SELECT count(), countIf(is_faulty) FROM (
    SELECT min(length(embedding)) != {{dim:UInt16}} OR max(length(embedding)) != {{dim:UInt16}}
        OR countIf(arrayExists(x -> NOT isFinite(x), embedding)) > 0
        OR count() != max(part) + 1 OR uniqExact(part) != count() AS is_faulty
    FROM knowledge_embeddings WHERE {_STAGED} GROUP BY {PLACE}
)"""
_NAMES: Final = ", ".join(TABLE.column_names)
_RENAMED: Final = _NAMES.replace("embedding_model", "{model:String}")
# In one thread the rows become one block and so one part: shown together, or after a crash not at all.
_ONE_BLOCK: Final = {"max_threads": 1, "max_insert_threads": 1}
_PUBLISH: Final = f"""INSERT INTO knowledge_embeddings ({_NAMES})
SELECT {_RENAMED} FROM knowledge_embeddings
WHERE {_STAGED} AND {_SHOWN}
    AND ({PLACE}) NOT IN (SELECT {PLACE} FROM knowledge_embeddings WHERE {IN_SCOPE} AND {OF_SPACE})"""
_SUPERSEDED: Final = f"""SELECT DISTINCT {PLACE} FROM knowledge_embeddings
WHERE {IN_SCOPE} AND NOT ({OF_SPACE}) AND ({PLACE}) > {{behind:Tuple(String, UInt64, UInt32)}}
    AND ({PLACE}) IN (SELECT {PLACE} FROM knowledge_embeddings WHERE {IN_SCOPE} AND {OF_SPACE})
ORDER BY {PLACE} LIMIT {{limit:UInt32}}"""
_REMOVE_SUPERSEDED: Final = f"""ALTER TABLE knowledge_embeddings DELETE
WHERE {IN_SCOPE} AND NOT ({OF_SPACE}) AND ({PLACE}) IN {{places:{PLACES}}}"""

FIRST: Final = ChunkPlace("", 0, 0)
"""Before every passage."""


@dataclass(frozen=True, slots=True)
class WaitingChunk:
    """A passage that has no vectors of the wanted space."""

    place: ChunkPlace
    breadcrumb: str
    text: str
    actor: str


class KnowledgeRewrites:
    """Finds passages whose vectors are missing or old, and moves vectors between models."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = own_write_reads(ch)

    async def waiting(self, scope: Scope, space: VectorSpace, *, staged: bool = False) -> int:
        """Counts passages without vectors of the space; `staged` counts staged ones as written."""
        parameters = {**in_scope(scope), **_written(space, staged=staged)}
        return int((await self._ch.query(_WAITING, parameters, settings=self._reads)).scalar())

    async def page(
        self, scope: Scope, behind: ChunkPlace, space: VectorSpace, limit: int, *, staged: bool = False
    ) -> list[WaitingChunk]:
        """Returns such passages behind a place, in order."""
        parameters = {**in_scope(scope), **_written(space, staged=staged), "behind": tuple(behind), "limit": limit}
        rows = await self._ch.query(_PAGE, parameters, settings=self._reads)
        return [WaitingChunk(ChunkPlace(*row[:3]), *row[3:]) for row in rows]

    async def current(self, scope: Scope, places: Sequence[ChunkPlace]) -> set[ChunkPlace]:
        """Returns those of some passages whose version is shown."""
        if not places:
            return set()
        parameters = {**in_scope(scope), "places": list(places)}
        return {ChunkPlace(*row) for row in await self._ch.query(_CURRENT, parameters, settings=self._reads)}

    async def discard_staged(self, scope: Scope, space: VectorSpace, *, keep_width: bool = False) -> None:
        """Removes what is staged, all or what is of another width, and returns once it is gone."""
        parameters = {**in_scope(scope), "staged": space.staged, "kept_dim": space.dim if keep_width else 0}
        if (await self._ch.query(_STAGED_ANY, parameters, settings=self._reads)).scalar():
            await self._ch.command(_DISCARD, parameters, settings={"mutations_sync": 2})

    async def faulty(self, scope: Scope, space: VectorSpace) -> tuple[int, int]:
        """Returns how many passages are staged, and how many of them not whole, of another width or not finite."""
        parameters = {**in_scope(scope), "staged": space.staged, "dim": space.dim}
        staged, faulty = (await self._ch.query(_FAULTY, parameters, settings=self._reads)).rows[0]
        return staged, faulty

    async def publish(self, scope: Scope, space: VectorSpace) -> None:
        """Shows what is staged."""
        parameters = {**in_scope(scope), **space._asdict(), "staged": space.staged}
        await self._ch.command(_PUBLISH, parameters, settings={**_ONE_BLOCK, **self._reads})

    async def superseded(self, scope: Scope, behind: ChunkPlace, space: VectorSpace, limit: int) -> list[ChunkPlace]:
        """Returns passages that have vectors of the space and others beside them."""
        parameters = {**in_scope(scope), **space._asdict(), "behind": tuple(behind), "limit": limit}
        return [ChunkPlace(*row) for row in await self._ch.query(_SUPERSEDED, parameters, settings=self._reads)]

    async def remove_superseded(self, scope: Scope, places: Sequence[ChunkPlace], space: VectorSpace) -> None:
        """Removes what these have beside the space, in the background of the store."""
        await self._ch.command(_REMOVE_SUPERSEDED, {**in_scope(scope), **space._asdict(), "places": list(places)})


def _written(space: VectorSpace, *, staged: bool) -> dict[str, object]:
    return {"models": [space.model, space.staged] if staged else [space.model], "dim": space.dim}
