"""The table `embedding_cache`: vectors that every replica may use."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np

from loom_common.clickhouse import ClickHouse, Table
from loom_embedding.domain.embedder import Vector

TABLE: Final = Table.of(
    "embedding_cache",
    org="LowCardinality(String)",
    model="LowCardinality(String)",
    cache_key="String",
    dim="UInt16",
    vector="Array(Float32)",
    expires_at="DateTime64(3, 'UTC')",
    version="UInt64",
)

# Without FINAL, which would read the vectors of superseded rows too; of one key the newest row counts.
_READ: Final = """SELECT cache_key, vector FROM embedding_cache
WHERE org = {org:String} AND model = {model:String} AND cache_key IN {keys:Array(String)}
    AND dim = {dim:UInt16} AND expires_at > {now:DateTime64(3, 'UTC')}
ORDER BY cache_key, version DESC LIMIT 1 BY cache_key"""


@dataclass(frozen=True, slots=True)
class CachedVector:
    """One row to keep."""

    org: str
    key: str
    vector: Vector
    expires_at: datetime
    version: int


class VectorRepository:
    """Owns the table `embedding_cache`, of one model."""

    def __init__(self, ch: ClickHouse, model: str, dim: int) -> None:
        self._ch = ch
        self._model = model
        self._dim = dim

    async def read(self, org: str, keys: Sequence[str], now: datetime, timeout_s: float) -> Mapping[str, Vector]:
        """Returns the vectors that are held under `keys`, of the model's width and not expired."""
        rows = await self._ch.query(
            _READ,
            {"org": org, "model": self._model, "keys": list(keys), "dim": self._dim, "now": now},
            timeout_s=timeout_s,
        )
        return {key: np.asarray(vector, dtype=np.float32) for key, vector in rows}

    async def write(self, rows: Sequence[CachedVector]) -> None:
        """Keeps vectors."""
        await self._ch.insert(
            TABLE,
            [
                (row.org, self._model, row.key, self._dim, row.vector.tolist(), row.expires_at, row.version)
                for row in rows
            ],
        )
