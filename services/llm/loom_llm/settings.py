"""Settings of the llm service."""

from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field, SecretStr

from loom_common.settings import URL_PATTERN, URL_RULE, LowerCase, ProviderSettings
from loom_common.settings.allowed import ALLOWED_KEY
from loom_llm.domain.policy import parse_policies
from loom_llm.domain.selection import ANTHROPIC, OPENAI, Provider

OpenAIEffort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
AnthropicEffort: TypeAlias = Literal["low", "medium", "high", "xhigh", "max"]


def _policies(text: str) -> str:
    parse_policies(text)
    return text


class LlmSettings(ProviderSettings):
    """What the llm service reads beside the common settings and those of all providers."""

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
    fallback_model: str | None = Field(
        default=None,
        alias="LOOM_LLM_FALLBACK_MODEL",
        min_length=1,
        max_length=128,
        description="Model that is asked where the first one's provider is out or refuses a request (400, 413, 422); "
        "its provider follows from its name. Unset: none.",
    )
    openai_reasoning_effort: Annotated[OpenAIEffort, LowerCase] | None = Field(
        default=None,
        alias="LOOM_LLM_OPENAI_REASONING_EFFORT",
        description="Reasoning effort of openai's models. Unset: the lowest that a model takes.",
    )
    anthropic_effort: Annotated[AnthropicEffort, LowerCase] | None = Field(
        default=None,
        alias="LOOM_LLM_ANTHROPIC_EFFORT",
        description="Thinking effort of anthropic's models. Unset: the model's own.",
    )
    hidden_reasoning_reserve_max: int = Field(
        default=25_000,  # Source: OpenAI's advice on how much to keep free for reasoning models
        alias="LOOM_LLM_HIDDEN_REASONING_RESERVE_MAX",
        ge=0,
        le=131_072,
        description="Most tokens that are added to an answer's cap for hidden reasoning. What is added is learned from "
        "the answers of a model.",
    )
    policy_by_traffic_class: Annotated[str, AfterValidator(_policies)] = Field(
        default="",
        alias="LOOM_LLM_POLICY_BY_TRAFFIC_CLASS",
        json_schema_extra={ALLOWED_KEY: "a JSON object of traffic classes"},
        description="What holds for calls of a traffic class where they do not say it themselves: `cache` answers them "
        'from Loom\'s own cache. Unset: `{"bench": {"cache": true}}`.',
    )
    anthropic_api_key: SecretStr | None = Field(
        default=None, alias="ANTHROPIC_API_KEY", min_length=1, description="Key for anthropic."
    )
    anthropic_base_url: str = Field(
        default="https://api.anthropic.com",
        alias="LOOM_ANTHROPIC_BASE_URL",
        pattern=URL_PATTERN,
        json_schema_extra=URL_RULE,
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
