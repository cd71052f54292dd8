"""What calls and background work cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

CostBy = Literal["day", "op", "model", "namespace"]

COST_BY: Final[tuple[CostBy, ...]] = ("day", "op", "model", "namespace")

MOST_ROWS: Final = 1_000
"""Most rows of one report. Source: chosen; above it a table is no report."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one group spent; a name that is not grouped by is empty."""

    day: str
    op: str
    model: str
    namespace: str
    calls: int
    embedding_tokens: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    llm_calls: int
    cost_usd: float
    saved_usd: float


@dataclass(frozen=True, slots=True)
class CostReport:
    """Rows, the dearest first; `total` is of all, shown or not."""

    rows: Sequence[Cost]
    total: Cost
    truncated: bool
