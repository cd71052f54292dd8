"""Settings of the command itself."""

from pydantic import Field, SecretStr

from loom_common.settings import LoomSettings


class ClientSettings(LoomSettings):
    """Where commands such as `loom memory` send, and as whom; the Python client reads the same variables."""

    base_url: str = Field(
        default="",
        alias="LOOM_BASE_URL",
        description="Address of the gateway, for clients and commands. Default: the Loom on the data directory.",
    )
    api_key: SecretStr = Field(
        default=SecretStr(""),
        alias="LOOM_API_KEY",
        description="Token that clients and commands call with. Default: that of the Loom on the data directory.",
    )
