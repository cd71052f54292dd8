"""Settings of the script that publishes prompts to Langfuse."""

from pydantic import Field, SecretStr

from loom_common.settings.base import LoomSettings
from loom_common.settings.urls import URL_PATTERN, URL_RULE


class LangfuseSettings(LoomSettings):
    """What `scripts/push_prompts.py` reads. No running service does."""

    url: str = Field(
        default="",
        alias="LOOM_LANGFUSE_URL",
        pattern=rf"^$|{URL_PATTERN}",
        json_schema_extra=URL_RULE,
        description="Root of a Langfuse that `scripts/push_prompts.py --write` publishes prompts to.",
    )
    admin_token: SecretStr = Field(
        default=SecretStr(""),
        alias="LOOM_LANGFUSE_ADMIN_TOKEN",
        description="Its credential: a project's keys as `public:secret`, or a token that is sent as `Bearer`.",
    )
