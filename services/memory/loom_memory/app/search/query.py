"""What a search is asked."""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from loom_memory.domain.memory import Filter
from loom_memory.domain.recipes import PLANS, Plan, Recipe, Weights


class SearchMode(StrEnum):
    """Which legs a search uses."""

    HYBRID = "hybrid"
    VECTOR = "vector"
    LEXICAL = "lexical"


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """What to find: `text`, among what `wanted` keeps, at most `top_k` of it.

    Attributes:
        mode: Legs that compare the text.
        recipe: Ready-made way to search.
        weights: Weights in place of the recipe's; None for the recipe's.
        as_of: Moment at which memories are looked at; None for now.
        asked_at: Moment that words such as "yesterday" are counted from; None for `as_of`, or now.
        superseded: Whether memories are shown whose validity has ended; None for what the recipe says.
        min_score: Hits under it are withheld.
        quality_filter: Whether hits are withheld that are not good.
        hyde: Whether a model may write what an answer would look like; None for what the recipe says.
        rerank: Reranker that the request names; empty for the namespace's own.
        fast: Whether nothing may be added to the legs.
        wide: Whether matches beyond the first are wanted as well, for pages and counts.
        facets: Whether the matches are counted.
        explain: Whether the answer tells how it came about.
    """

    text: str
    wanted: Filter
    top_k: int
    mode: SearchMode = SearchMode.HYBRID
    recipe: Recipe = Recipe.BALANCED
    weights: Weights | None = None
    as_of: datetime | None = None
    asked_at: datetime | None = None
    superseded: bool | None = None
    min_score: float = 0.0
    quality_filter: bool = False
    hyde: bool | None = None
    rerank: str = ""
    fast: bool = False
    wide: bool = False
    facets: bool = False
    explain: bool = False

    def narrowed(self, wanted: Filter) -> "SearchQuery":
        """Returns it over what another filter keeps."""
        return replace(self, wanted=wanted)

    @property
    def plan(self) -> Plan:
        """What its recipe means."""
        return PLANS[self.recipe]

    @property
    def is_fast(self) -> bool:
        """Whether nothing may be added to the legs."""
        return self.fast or self.recipe is Recipe.FAST

    @property
    def shows_superseded(self) -> bool:
        """Whether memories are shown whose validity has ended."""
        return self.plan.superseded if self.superseded is None else self.superseded
