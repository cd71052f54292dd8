"""The table `memory_embeddings` where a version has the text of another, and so its vectors."""

from dataclasses import dataclass
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, own_write_reads
from loom_memory.domain.keys import FIRST_KEY_CHUNK
from loom_memory.domain.memory import Identity
from loom_memory.store.embeddings import EmbeddedChunk
from loom_memory.store.memories import POINT_READ

# The identity alone would read every model's vectors of every version of it, of which there are few.
_OF_VERSION: Final = """SELECT chunk, start_offset, end_offset, embedding FROM memory_embeddings
WHERE org = {org:String} AND namespace = {namespace:String} AND embedding_model = {model:String}
    AND memory_key = {key:String} AND user_id = {user_id:String} AND session_id = {session_id:String}
    AND version = {version:UInt64} AND embedding_dim > 0
ORDER BY chunk LIMIT 70000"""

_BY_MODEL: Final = """SELECT embedding_model, countIf(chunk < {first_key:UInt32} AND embedding_dim > 0),
    max(embedding_dim), countIf(chunk >= {first_key:UInt32})
FROM memory_embeddings
WHERE org = {org:String} AND namespace = {namespace:String} AND memory_key = {key:String}
    AND user_id = {user_id:String} AND session_id = {session_id:String} AND version = {version:UInt64}
GROUP BY embedding_model ORDER BY embedding_model LIMIT 100"""


@dataclass(frozen=True, slots=True)
class ModelVectors:
    """What a version has of one model's vectors; `dim` is 0 while they are still to come."""

    model: str
    chunks: int
    dim: int
    of_key: bool


class VersionVectors:
    """Reads the vectors of single versions."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = {**POINT_READ, **own_write_reads(ch)}

    async def of(self, scope: Scope, identity: Identity, version: int, model: str) -> list[EmbeddedChunk]:
        """Returns the vectors that a version has of a model, in order of their chunks."""
        parameters = {**_version(scope, identity, version), "model": model}
        rows = await self._ch.query(_OF_VERSION, parameters, settings=self._reads)
        return [EmbeddedChunk(scope, identity, version, *row) for row in rows]

    async def by_model(self, scope: Scope, identity: Identity, version: int) -> list[ModelVectors]:
        """Returns what a version has of each model, by its name."""
        parameters = {**_version(scope, identity, version), "first_key": FIRST_KEY_CHUNK}
        rows = await self._ch.query(_BY_MODEL, parameters, settings=self._reads)
        return [ModelVectors(row[0], row[1], row[2], bool(row[3])) for row in rows]


def _version(scope: Scope, identity: Identity, version: int) -> dict[str, object]:
    return {
        "org": scope.org,
        "namespace": scope.namespace,
        "key": identity.key,
        "user_id": identity.user_id,
        "session_id": identity.session_id,
        "version": version,
    }
