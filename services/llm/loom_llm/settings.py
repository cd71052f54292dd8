"""Settings of the llm service."""

from typing import Annotated

from pydantic import Field, SecretStr
from pydantic.config import JsonDict

from loom_common.settings import ALLOWED_KEY, CommonSettings, LowerCase
from loom_llm.domain.selection import ANTHROPIC, OPENAI, Provider

_URL = r"^https?://[^\s]+$"
_URL_RULE: JsonDict = {ALLOWED_KEY: "http://host or https://host, with a path where the API has one"}


class LlmSettings(CommonSettings):
    """What the llm service reads beside the common settings."""

    provider: Annotated[Provider, LowerCase] | None = Field(
        default=None,
        alias="LOOM_LLM_PROVIDER",
        description="Provider of answers. Unset: it follows from LOOM_LLM_MODEL, then from the key that is set.",
    )
    model: str | None = Field(
        default=None,
        alias="LOOM_LLM_MODEL",
        max_length=128,
        description="Model to ask. Unset: `gpt-6-luna` of openai, `claude-haiku-4-5` of anthropic.",
    )
    openai_api_key: SecretStr | None = Field(
        default=None, alias="OPENAI_API_KEY", min_length=1, description="Key for openai."
    )
    anthropic_api_key: SecretStr | None = Field(
        default=None, alias="ANTHROPIC_API_KEY", min_length=1, description="Key for anthropic."
    )
    openai_base_url: str = Field(
        default="https://api.openai.com/v1",
        alias="LOOM_OPENAI_BASE_URL",
        pattern=_URL,
        json_schema_extra=_URL_RULE,
        description="Root of the OpenAI API, or of a server that speaks it, such as `http://localhost:11434/v1`.",
    )
    anthropic_base_url: str = Field(
        default="https://api.anthropic.com",
        alias="LOOM_ANTHROPIC_BASE_URL",
        pattern=_URL,
        json_schema_extra=_URL_RULE,
        description="Root of the Anthropic API, or of a server that speaks it.",
    )
    request_timeout_s: float = Field(
        default=300.0,
        alias="LOOM_LLM_REQUEST_TIMEOUT_S",
        gt=0,
        le=3600,
        description="Longest silence of a provider in one attempt, in seconds. It catches a hung connection; callers "
        "that need less set a deadline.",
    )
    total_deadline_s: float = Field(
        default=1800.0,
        alias="LOOM_LLM_TOTAL_DEADLINE_S",
        gt=0,
        le=7200,
        description="Time for all attempts of one call together, in seconds.",
    )
    retry_attempts: int = Field(
        default=4, alias="LOOM_LLM_RETRY_ATTEMPTS", ge=1, le=20, description="Attempts of one call in all."
    )
    retry_max_wait_s: float = Field(
        default=20.0,
        alias="LOOM_LLM_RETRY_MAX_WAIT_S",
        ge=0,
        le=600,
        description="Longest wait between two attempts, in seconds. A provider that asks for a longer one is not asked "
        "again.",
    )

    @property
    def keys(self) -> dict[Provider, SecretStr]:
        """The keys that are set, by provider."""
        given: dict[Provider, SecretStr | None] = {OPENAI: self.openai_api_key, ANTHROPIC: self.anthropic_api_key}
        return {provider: key for provider, key in given.items() if key is not None}
