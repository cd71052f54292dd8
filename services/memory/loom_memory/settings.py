"""Settings of memory."""

from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import NoDecode

from loom_common.settings import ALLOWED_KEY, CommonSettings


class MemorySettings(CommonSettings):
    """What memory reads."""

    embed_bound_s: float = Field(
        default=2.5,
        alias="LOOM_MEMORY_SEARCH_EMBED_BOUND_S",
        gt=0,
        le=60,
        description="Time that one attempt to embed a query may take, in seconds; beyond it a search answers "
        "EMBED_TIMEOUT.",
    )
    embed_bound_retries: int = Field(
        default=1,
        alias="LOOM_MEMORY_SEARCH_EMBED_BOUND_RETRIES",
        ge=0,
        le=5,
        description="Further attempts to embed a query after the bound has passed, 0 to 5.",
    )
    fanout_kinds: Annotated[tuple[str, ...], NoDecode] = Field(
        default=("memory",),
        alias="LOOM_MEMORY_SEARCH_FANOUT_KINDS",
        description="Kinds of namespaces that a search over all of a caller's namespaces reads, separated by commas.",
        json_schema_extra={ALLOWED_KEY: "names separated by commas"},
    )
    fanout_max_namespaces: int = Field(
        default=8,
        alias="LOOM_MEMORY_SEARCH_FANOUT_MAX_NAMESPACES",
        ge=0,
        le=64,
        description="Most namespaces that such a search reads beside the addressed one, 0 to 64.",
    )
    sweep_interval_s: float = Field(
        default=3600.0,
        alias="LOOM_MEMORY_SWEEP_INTERVAL_S",
        ge=1,
        le=86_400,
        description="Time between two passes that remove what interrupted and superseded writes left, in seconds.",
    )

    @field_validator("fanout_kinds", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        return tuple(part.strip() for part in value.split(",") if part.strip())
