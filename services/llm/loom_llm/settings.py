"""Settings of the llm service."""

from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from loom_common.settings import KEY_RULE, URL_PATTERN, URL_RULE, ApiKey, LowerCase, ProviderSettings
from loom_common.settings.allowed import ALLOWED_KEY
from loom_llm.domain.endpoints import parse_classify_endpoints, parse_rerank_endpoints
from loom_llm.domain.policy import parse_policies
from loom_llm.domain.selection import ANTHROPIC, OPENAI, Provider

OpenAIEffort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
AnthropicEffort: TypeAlias = Literal["low", "medium", "high", "xhigh", "max"]

_NoCap = BeforeValidator(lambda value: None if isinstance(value, str) and value.lower() == "none" else value)


def _policies(text: str) -> str:
    parse_policies(text)
    return text


def _rerank_endpoints(text: SecretStr) -> SecretStr:
    parse_rerank_endpoints(text.get_secret_value())
    return text


def _classify_endpoints(text: SecretStr) -> SecretStr:
    parse_classify_endpoints(text.get_secret_value())
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
    default_daily_cost_cap_usd: Annotated[float | None, _NoCap] = Field(
        default=1.0,  # Source: chosen; some fifteen answers of the assistant, and a fault costs no more than that
        alias="LOOM_DEFAULT_DAILY_COST_CAP_USD",
        ge=0,
        json_schema_extra={ALLOWED_KEY: "a number, at least 0, or none"},
        description="What the calls to models of a namespace without a cap of its own may cost in a day (UTC), in US "
        "dollars; `none` for no cap.",
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
    anthropic_api_key: ApiKey | None = Field(
        default=None, alias="ANTHROPIC_API_KEY", json_schema_extra=KEY_RULE, description="Key for anthropic."
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

    cohere_api_key: ApiKey | None = Field(
        default=None,
        alias="COHERE_API_KEY",
        json_schema_extra=KEY_RULE,
        description="Key for Cohere, which the reranker `builtin:cohere` asks.",
    )
    cohere_base_url: str = Field(
        default="https://api.cohere.com",
        alias="LOOM_COHERE_BASE_URL",
        pattern=URL_PATTERN,
        json_schema_extra=URL_RULE,
        description="Root of the Cohere API, or of a server that speaks its `/v2/rerank`.",
    )
    rerank_endpoints: Annotated[SecretStr, AfterValidator(_rerank_endpoints)] = Field(
        default=SecretStr(""),
        alias="LOOM_RERANK_ENDPOINTS_JSON",
        json_schema_extra={ALLOWED_KEY: "a JSON object of rerankers"},
        description='Rerankers over HTTP by their names, such as `{"bge": {"url": "http://reranker:8080/rerank", '
        '"format": "tei"}}`. Each has `url`, and may have `format` (`cohere`, `jina`, `tei`), `model`, `headers`, '
        "`scores` (`unit`, `logit`) and `timeout_s`.",
    )
    rerank_timeout_s: float = Field(
        default=10.0,  # Source: chosen; a search waits for it
        alias="LOOM_RERANK_TIMEOUT_S",
        gt=0,
        le=600,
        description="Time for all attempts of one call to Cohere or a reranker over HTTP, in seconds.",
    )
    classify_endpoints: Annotated[SecretStr, AfterValidator(_classify_endpoints)] = Field(
        default=SecretStr(""),
        alias="LOOM_CLASSIFY_ENDPOINTS_JSON",
        json_schema_extra={ALLOWED_KEY: "a JSON object of classifiers"},
        description='Classifiers over HTTP by their names, such as `{"topics": {"url": "http://classifier:8080/predict"'
        "}}`. Each has `url`, and may have `model`, `headers`, `min_score` (0.5) and `timeout_s`.",
    )
    classify_timeout_s: float = Field(
        default=5.0,  # Source: chosen; a write waits for it
        alias="LOOM_CLASSIFY_TIMEOUT_S",
        gt=0,
        le=600,
        description="Time for all attempts of one call to a classifier, in seconds.",
    )

    @property
    def keys(self) -> dict[Provider, SecretStr]:
        """The keys that are set, by provider."""
        given: dict[Provider, SecretStr | None] = {OPENAI: self.openai_api_key, ANTHROPIC: self.anthropic_api_key}
        return {provider: key for provider, key in given.items() if key is not None}
