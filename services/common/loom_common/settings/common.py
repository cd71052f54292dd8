"""Settings that every service reads."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from loom_common.settings.allowed import ALLOWED_KEY
from loom_common.settings.base import LoomSettings

DEFAULT_DATA_DIR: Final = "~/.local/share/loom"


class Service(StrEnum):
    """Services by the names that their settings, credentials and addresses carry."""

    IDENTITY = "identity"
    EMBEDDING = "embedding"
    LLM = "llm"
    MEMORY = "memory"
    INSIGHTS = "insights"
    ASSISTANT = "assistant"

    @property
    def default_port(self) -> int:
        """Documented gRPC port; identity lives in the gateway's process."""
        return 50050 + list(Service).index(self)


_ADDRESS = r"^(?:unix:.+|(?:dns:///|ipv4:|ipv6:)?[^\s/]+:[0-9]{1,5})$"

Address = Annotated[str, Field(pattern=_ADDRESS, json_schema_extra={ALLOWED_KEY: "host:port or unix:<path>"})]


def _expanded(path: Path) -> Path:
    try:
        found = path.expanduser()
        found.resolve()
    except (OSError, RuntimeError) as error:
        # Nobody has that home, or links lead around in a circle.
        raise ValueError("names no place in the file system") from error
    return found


HomePath = Annotated[Path, AfterValidator(_expanded)]
LowerCase = BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value)


def _listen(service: Service) -> str:
    return f"127.0.0.1:{service.default_port}"


class CommonSettings(LoomSettings):
    """What every service reads."""

    data_dir: HomePath = Field(
        default=Path(DEFAULT_DATA_DIR).expanduser(),
        alias="LOOM_DATA_DIR",
        description="Directory of what this machine keeps: the embedded engine, keys, models, backups. "
        f"Default: `{DEFAULT_DATA_DIR}`.",
        json_schema_extra={"shown_default": DEFAULT_DATA_DIR},
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], LowerCase] = Field(
        default="info", alias="LOOM_LOG_LEVEL", description="Least severe level that is logged."
    )
    log_format: Annotated[Literal["auto", "json", "console"], LowerCase] = Field(
        default="auto",
        alias="LOOM_LOG_FORMAT",
        description="Form of log lines: `json`, `console` for people, or `auto`: console on a terminal, else JSON.",
    )
    otlp_endpoint: str = Field(
        default="",
        alias="LOOM_OTLP_ENDPOINT",
        pattern=r"^(?:https?://[^\s]+)?$",
        json_schema_extra={ALLOWED_KEY: "http://host:port or https://host:port"},
        description="OpenTelemetry collector that gets traces, metrics and logs over OTLP/gRPC, such as "
        "`http://localhost:4317`; `http` is plain text, `https` is TLS. Empty: nothing is exported.",
    )
    service_key: HomePath | None = Field(
        default=None,
        alias="LOOM_SERVICE_KEY",
        description="File with the private key (JWK, Ed25519) that this service shows to others. "
        "`loom up` makes it; deployments mount it.",
    )
    service_jwks: HomePath | None = Field(
        default=None,
        alias="LOOM_SERVICE_JWKS",
        description="File with the public keys (JWKS) of all services. `loom up` makes it; deployments mount it.",
    )
    identity_addr: Address = Field(
        default=_listen(Service.IDENTITY),
        alias="LOOM_IDENTITY_ADDR",
        description="gRPC address of identity, which the gateway's process serves.",
    )
    embedding_addr: Address = Field(
        default=_listen(Service.EMBEDDING), alias="LOOM_EMBEDDING_ADDR", description="gRPC address of embedding."
    )
    llm_addr: Address = Field(default=_listen(Service.LLM), alias="LOOM_LLM_ADDR", description="gRPC address of llm.")
    memory_addr: Address = Field(
        default=_listen(Service.MEMORY), alias="LOOM_MEMORY_ADDR", description="gRPC address of memory."
    )
    insights_addr: Address = Field(
        default=_listen(Service.INSIGHTS), alias="LOOM_INSIGHTS_ADDR", description="gRPC address of insights."
    )
    assistant_addr: Address = Field(
        default=_listen(Service.ASSISTANT), alias="LOOM_ASSISTANT_ADDR", description="gRPC address of assistant."
    )
    identity_listen: Address = Field(
        default=_listen(Service.IDENTITY),
        alias="LOOM_IDENTITY_LISTEN",
        description="Address that the gateway's process serves identity on over gRPC; port 0 takes a free one.",
    )
    embedding_listen: Address = Field(
        default=_listen(Service.EMBEDDING),
        alias="LOOM_EMBEDDING_LISTEN",
        description="Address that embedding serves on; port 0 takes a free one.",
    )
    llm_listen: Address = Field(
        default=_listen(Service.LLM),
        alias="LOOM_LLM_LISTEN",
        description="Address that llm serves on; port 0 takes a free one.",
    )
    memory_listen: Address = Field(
        default=_listen(Service.MEMORY),
        alias="LOOM_MEMORY_LISTEN",
        description="Address that memory serves on; port 0 takes a free one.",
    )
    insights_listen: Address = Field(
        default=_listen(Service.INSIGHTS),
        alias="LOOM_INSIGHTS_LISTEN",
        description="Address that insights serves on; port 0 takes a free one.",
    )
    assistant_listen: Address = Field(
        default=_listen(Service.ASSISTANT),
        alias="LOOM_ASSISTANT_LISTEN",
        description="Address that assistant serves on; port 0 takes a free one.",
    )
    grpc_max_message_bytes: int = Field(
        default=8 * 1024 * 1024,
        alias="LOOM_GRPC_MAX_MESSAGE_BYTES",
        ge=64 * 1024,
        le=256 * 1024 * 1024,
        description="Largest gRPC message that is taken or sent, in bytes.",
    )
    grpc_max_concurrent_calls: int = Field(
        default=512,
        alias="LOOM_GRPC_MAX_CONCURRENT_CALLS",
        ge=1,
        description="Calls that a service runs at once; more are answered OVERLOADED.",
    )
    grpc_max_call_s: float = Field(
        default=300.0,
        alias="LOOM_GRPC_MAX_CALL_S",
        gt=0,
        description="Longest time that a service works on a call that answers one message, in seconds.",
    )
    rate_limit_default_per_s: float = Field(
        default=500.0,
        alias="LOOM_RATE_LIMIT_DEFAULT_PER_S",
        gt=0,
        description="Calls per second that one token, with those made from it, may make of each class of operations "
        "without a rate of its own; a burst of two seconds' worth is let through. Each replica counts for itself.",
    )
    rate_limit_write_per_s: float = Field(
        default=500.0,
        alias="LOOM_RATE_LIMIT_WRITE_PER_S",
        gt=0,
        description="Writes per second that one token may make.",
    )
    rate_limit_search_per_s: float = Field(
        default=500.0,
        alias="LOOM_RATE_LIMIT_SEARCH_PER_S",
        gt=0,
        description="Searches per second that one token may make.",
    )
    rate_limit_insights_per_s: float = Field(
        default=20.0,
        alias="LOOM_RATE_LIMIT_INSIGHTS_PER_S",
        gt=0,
        description="Statements of `insights.query` per second that one token may send.",
    )
    rate_limit_identity_per_s: float = Field(
        default=50.0,
        alias="LOOM_RATE_LIMIT_IDENTITY_PER_S",
        gt=0,
        description="Calls per second that one token may make to manage tokens and namespaces.",
    )
    rate_limit_org_times: float = Field(
        default=4.0,
        alias="LOOM_RATE_LIMIT_ORG_TIMES",
        ge=1,
        description="How many times one token's rates all tokens of an organisation may make together.",
    )
    default_deadline_s: float = Field(
        default=30.0,
        alias="LOOM_DEFAULT_DEADLINE_S",
        gt=0,
        le=3600,
        description="Time that a call to another service gets when its caller set no deadline, in seconds.",
    )
    drain_s: float = Field(
        default=10.0,
        alias="LOOM_DRAIN_S",
        ge=0,
        le=600,
        description="Time that running calls get to end when the service stops, in seconds.",
    )
    require_real_providers: bool = Field(
        default=False,
        alias="LOOM_REQUIRE_REAL_PROVIDERS",
        description="Whether a fake embedder or model counts as an error, so that health reads `degraded`.",
    )
    reads_llm_free: bool = Field(
        default=False,
        alias="LOOM_READS_LLM_FREE",
        description="Whether operations that only read never call a model that completes text.",
    )

    def addr_of(self, service: Service) -> str:
        """Returns the address to reach a service at."""
        return str(getattr(self, f"{service.value}_addr"))
