"""Settings of guides."""

from pydantic import Field

from loom_common.settings import LoomSettings


class GuideSettings(LoomSettings):
    """What guides read."""

    # Source: chosen. What is to be put right does not change by the minute, and each change moves the prefix of packs.
    mentor_ttl_s: int = Field(
        default=21_600,
        alias="LOOM_MENTOR_TTL_SECONDS",
        ge=0,
        le=604_800,
        description="How long what was found to be put right in a namespace is told before it is looked for again, in "
        "seconds. 0 turns it off: packs say nothing of it.",
    )
    # Source: chosen, as above; numbers age faster than advice.
    namespace_health_ttl_s: int = Field(
        default=3_600,
        alias="LOOM_NAMESPACE_HEALTH_TTL_SECONDS",
        ge=0,
        le=604_800,
        description="How long the counts of a namespace are told before it is counted again, in seconds. 0 turns it "
        "off: packs say nothing of its health.",
    )
