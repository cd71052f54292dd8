"""The table `retrieval_judgements`: what a model thought of sampled searches."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, Table

TABLE: Final = Table.of(
    "retrieval_judgements",
    org="LowCardinality(String)",
    namespace="LowCardinality(String)",
    judged_at="DateTime64(3, 'UTC')",
    request_id="String",
    op="LowCardinality(String)",
    model="LowCardinality(String)",
    hits="UInt16",
    relevant="UInt16",
    first_relevant="UInt16",
    answered="Bool",
)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a model thought of one search.

    Attributes:
        hits: Hits that it was shown.
        relevant: Those that help to answer.
        first_relevant: Place of the first of them, from 1; 0 for none.
        answered: Whether they answer the question together.
    """

    scope: Scope
    judged_at: datetime
    request_id: str
    op: str
    model: str
    hits: int
    relevant: int
    first_relevant: int
    answered: bool


class JudgementRepository:
    """Owns the table `retrieval_judgements`."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch

    async def insert(self, judgement: Judgement) -> None:
        """Stores one."""
        row = (
            judgement.scope.org,
            judgement.scope.namespace,
            judgement.judged_at,
            judgement.request_id,
            judgement.op,
            judgement.model,
            judgement.hits,
            judgement.relevant,
            judgement.first_relevant,
            judgement.answered,
        )
        await self._ch.insert(TABLE, [row])
