"""Settings of context."""

from pydantic import Field

from loom_common.settings import LoomSettings

_MIB = 1024 * 1024


class ContextSettings(LoomSettings):
    """What context reads."""

    # Source: chosen. Twice the longest log that a tool usually writes. The contract takes 3,000,000 bytes, which
    # fit the body that the gateway takes.
    context_offload_max_bytes: int = Field(
        default=2 * _MIB,
        alias="LOOM_CONTEXT_OFFLOAD_MAX_BYTES",
        ge=1024,
        le=3_000_000,
        description="Longest text that context.offload parks, in bytes of UTF-8.",
    )
