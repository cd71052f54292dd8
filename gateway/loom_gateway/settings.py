"""The gateway's own settings: its HTTP listener, its limits, and the secret that identity seals its keys with."""

import re
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from loom_common.settings import ALLOWED_KEY, Address, LowerCase, SealingSettings, Secret
from loom_gateway.identity.settings import IdentitySettings
from loom_gateway.mcp.toolsets import Toolset

DEFAULT_LISTEN: Final = "127.0.0.1:8080"

# Names and addresses as a browser and a Host header spell them: no path, no wildcard, no user.
_HOST: Final = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_ORIGIN: Final = re.compile(rf"(?:https?|[a-z][a-z0-9+.-]*-extension)://{_HOST.pattern}")


def _each(form: re.Pattern[str]) -> AfterValidator:
    def check(value: str) -> str:
        if not all(form.fullmatch(word) for word in split_list(value)):
            raise ValueError("a word of the list is not of its form")
        return value

    return AfterValidator(check)


def split_list(value: str) -> tuple[str, ...]:
    """Returns the words of a list that is separated by commas."""
    return tuple(word.strip() for word in value.split(",") if word.strip())


class GatewaySettings(IdentitySettings, SealingSettings):
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
    http_allowed_hosts: Annotated[str, _each(_HOST)] = Field(
        default="",
        alias="LOOM_HTTP_ALLOWED_HOSTS",
        json_schema_extra={ALLOWED_KEY: "host names, each with or without a port, separated by commas"},
        description="Names that the gateway answers to beside that of `LOOM_PUBLIC_URL` and the machine's own, "
        "separated by commas. Empty: on loopback none, elsewhere every name.",
    )
    http_allowed_origins: Annotated[str, _each(_ORIGIN)] = Field(
        default="",
        alias="LOOM_HTTP_ALLOWED_ORIGINS",
        json_schema_extra={ALLOWED_KEY: "origins such as https://app.example.org, separated by commas"},
        description="Origins of web pages elsewhere that may call the gateway from a browser, separated by commas. "
        "Empty: none, and nothing is said of CORS.",
    )
    http_max_connections: int = Field(
        default=4096,
        alias="LOOM_HTTP_MAX_CONNECTIONS",
        ge=1,
        description="HTTP connections that are open at once; more are answered 503 and closed.",
    )
    http_keep_alive_s: int = Field(
        default=75,
        alias="LOOM_HTTP_KEEP_ALIVE_S",
        ge=1,
        le=3600,
        description="Time for which an HTTP connection may idle between two requests, in seconds. Keep it above that "
        "of a proxy in front.",
    )
    http_max_calls: int = Field(
        default=64,
        alias="LOOM_HTTP_MAX_CALLS",
        ge=1,
        description="Calls over HTTP and MCP of one service's operations of one class that run at once in one replica.",
    )
    http_max_waiting_calls: int = Field(
        default=256,
        alias="LOOM_HTTP_MAX_WAITING_CALLS",
        ge=0,
        description="Calls of one service's operations of one class that wait for others to end; more are answered "
        "OVERLOADED.",
    )
    http_max_wait_s: float = Field(
        default=1.0,
        alias="LOOM_HTTP_MAX_WAIT_S",
        gt=0,
        le=60,
        description="Longest such wait, in seconds; after it a call is answered OVERLOADED.",
    )
    http_max_import_bytes: int = Field(
        default=64 * 1024 * 1024,
        alias="LOOM_HTTP_MAX_IMPORT_BYTES",
        ge=1024,
        le=1 << 30,
        description="Largest body of an import over HTTP, in bytes. It is read and stored as it comes, not held whole.",
    )
    http_max_streams: int = Field(
        default=256,
        alias="LOOM_HTTP_MAX_STREAMS",
        ge=1,
        description="Answers of one service that are streamed at once over HTTP.",
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
