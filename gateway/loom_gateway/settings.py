"""The gateway's own settings: its HTTP listener, its limits, and the secret that identity seals its keys with."""

from typing import Annotated, Final

from pydantic import Field, SecretStr

from loom_common.sealing import MIN_SECRET_CHARS
from loom_common.settings import ALLOWED_KEY, Address, LowerCase, ModelCallsSettings
from loom_gateway.mcp.toolsets import Toolset

DEFAULT_LISTEN: Final = "127.0.0.1:8080"

Secret = Annotated[SecretStr, Field(min_length=MIN_SECRET_CHARS)]


class GatewaySettings(ModelCallsSettings):
    """What the gateway reads beside what every service does."""

    listen: Address = Field(
        default=DEFAULT_LISTEN,
        alias="LOOM_GATEWAY_LISTEN",
        description="Address that the gateway serves HTTP and MCP on; port 0 takes a free one.",
    )
    public_url: str = Field(
        default="",
        alias="LOOM_PUBLIC_URL",
        pattern=r"^(?:https?://[^\s/?#]+(?:/[^\s?#]*)?)?$",
        json_schema_extra={ALLOWED_KEY: "http://host, https://host or either with a path"},
        description="Where callers find the gateway, such as `https://loom.example.org`; needed behind a proxy. "
        "Empty: the address that a request came to.",
    )
    mcp_toolset: Annotated[Toolset, LowerCase] = Field(
        default=Toolset.DEFAULT,
        alias="LOOM_MCP_TOOLSET",
        description="Tools that MCP shows to a client that asks for no other set.",
    )
    http_max_body_bytes: int = Field(
        default=4 * 1024 * 1024,
        alias="LOOM_HTTP_MAX_BODY_BYTES",
        ge=1024,
        le=64 * 1024 * 1024,
        description="Largest body of an HTTP request, in bytes; keep it below `LOOM_GRPC_MAX_MESSAGE_BYTES`.",
    )
    http_deadline_s: float = Field(
        default=60.0,
        alias="LOOM_HTTP_DEADLINE_S",
        gt=0,
        le=3600,
        description="Longest time of a call over HTTP or MCP, in seconds.",
    )
    jwt_secret: Secret = Field(
        alias="LOOM_JWT_SECRET",
        description="Secret that keys and other secrets in the database are sealed under. `loom up` makes it; "
        "deployments set it once and keep it.",
    )
    jwt_secret_previous: Secret | None = Field(
        default=None,
        alias="LOOM_JWT_SECRET_PREVIOUS",
        description="Secret before the current one: what it sealed can still be read.",
    )
