"""Settings of searches over everything."""

from pydantic import Field

from loom_common.settings import LoomSettings
from loom_memory.unified.domain.composing import FloorMode


class UnifiedSettings(LoomSettings):
    """What `search.query`, which MCP calls `loom_search`, reads."""

    loom_search_precision_floor: float = Field(
        default=-1.0,
        alias="LOOM_MCP_LOOM_SEARCH_PRECISION_FLOOR",
        ge=-1,
        le=1,
        description="Similarity under which search.query withholds memories. Below 0: derived from the embedder's "
        "calibration. 0: none.",
    )
    loom_search_foreign_margin: float | None = Field(
        default=None,
        alias="LOOM_MCP_LOOM_SEARCH_FOREIGN_MARGIN",
        ge=0,
        le=2,
        description="Similarity that a memory of another namespace than the leading one needs beyond that floor. "
        "Unset: 0.08, scaled to the embedder by its calibration.",
    )
    loom_search_knowledge_min_similarity: float | None = Field(
        default=None,
        alias="LOOM_MCP_LOOM_SEARCH_KNOWLEDGE_MIN_SIMILARITY",
        ge=-1,
        le=1,
        description="Least similarity of a passage that search.query answers with. Unset: 0.30, or the embedder's "
        "noise floor where that is higher.",
    )
    loom_search_profile_min_similarity: float | None = Field(
        default=None,
        alias="LOOM_MCP_LOOM_SEARCH_PROFILE_MIN_SIMILARITY",
        ge=-1,
        le=1,
        description="Least similarity of a profile section that holds no word of the query. Unset: 0.38, or the "
        "embedder's noise floor where that is higher.",
    )
    loom_search_floor_mode: FloorMode = Field(
        default=FloorMode.DROP,
        alias="LOOM_MCP_LOOM_SEARCH_FLOOR_MODE",
        description="What becomes of memories under the floor: drop leaves them out, readmit fills top_k up with them, "
        "ids_only fills it up with their keys.",
    )
