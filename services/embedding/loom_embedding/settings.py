"""Settings of the embedding service."""

import os
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, field_validator
from pydantic_settings import NoDecode

from loom_common.settings import (
    KEY_RULE,
    OPENAI_BASE_URL,
    URL_PATTERN,
    URL_RULE,
    ApiKey,
    HomePath,
    LowerCase,
    ProviderSettings,
)
from loom_embedding.domain.embedder import GEMINI, OPENAI

# Source: chosen; each takes a processor from everything else that runs here.
_MOST_THREADS: Final = 4

_GEMINI_BASE_URL: Final = "https://generativelanguage.googleapis.com/v1beta"


def _default_threads() -> int:
    return min(_MOST_THREADS, len(os.sched_getaffinity(0)))


class EmbeddingSettings(ProviderSettings):
    """What the embedding service reads beside the common settings and those of all providers."""

    provider: Annotated[str, LowerCase] | None = Field(
        default=None,
        alias="LOOM_EMBEDDING_PROVIDER",
        description="Provider of vectors: `local`, `openai`, `gemini` or `fake`. Unset: it follows from "
        "LOOM_EMBEDDING_MODEL.",
    )
    model: str | None = Field(
        default=None,
        alias="LOOM_EMBEDDING_MODEL",
        max_length=128,
        description="Model to serve: `local:minilm`, `local:bge-small` (also `local`), `local:bge-base`, "
        "`text-embedding-3-small` and its like, `gemini-embedding-001`, or `fake-ngram-<dim>`; any name of a "
        "compatible server where LOOM_EMBEDDING_PROVIDER is set. Unset: the provider's default, else `local:minilm`.",
    )
    gemini_api_key: ApiKey | None = Field(
        default=None, alias="GEMINI_API_KEY", json_schema_extra=KEY_RULE, description="Key for gemini."
    )
    google_api_key: ApiKey | None = Field(
        default=None,
        alias="GOOGLE_API_KEY",
        json_schema_extra=KEY_RULE,
        description="Key for gemini where GEMINI_API_KEY is not set.",
    )
    gemini_base_url: str = Field(
        default=_GEMINI_BASE_URL,
        alias="LOOM_GEMINI_BASE_URL",
        pattern=URL_PATTERN,
        json_schema_extra=URL_RULE,
        description="Root of the Gemini API, or of a server that speaks it.",
    )
    retry_attempts: int = Field(
        default=3,
        alias="LOOM_EMBEDDING_RETRY_ATTEMPTS",
        ge=1,
        le=20,
        description="Attempts in all of one request that embeds stored texts. A query has its own bound and retries.",
    )
    retry_max_wait_s: float = Field(
        default=10.0,
        alias="LOOM_EMBEDDING_RETRY_MAX_WAIT_S",
        ge=0,
        le=600,
        description="Longest wait between two attempts, in seconds. A provider that asks for a longer one is not asked "
        "again.",
    )
    window_tokens: int | None = Field(
        default=None,
        alias="LOOM_EMBEDDING_WINDOW_TOKENS",
        ge=64,
        le=1_000_000,
        description="Most tokens that a remote model reads at once; longer texts are embedded in chunks. Set it for a "
        "compatible server whose model reads less. Unset: 8191 for openai, 2048 for gemini.",
    )
    code_search_vector_models: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        alias="LOOM_CODE_SEARCH_VECTOR_MODELS",
        description="Further views over the served model, separated by commas: `prefix:<dim>:<model>` is the beginning "
        "of its vectors, `ctx[<variant>]:<model>` its vectors of rewritten texts. Unset: none.",
    )
    model_dir: HomePath | None = Field(
        default=None,
        alias="LOOM_EMBEDDING_MODEL_DIR",
        description="Directory of local models, one folder for each, such as `local-minilm`. "
        "Unset: `models` in the data directory.",
    )
    dim: int | None = Field(
        default=None,
        alias="LOOM_EMBEDDING_DIM",
        ge=1,
        le=4096,
        description="Width that stored vectors have. A remote model is asked for it. Unset: the model's own; must be "
        "set for a remote model that Loom does not know. A local model has its own width whatever this says; another "
        "value is shown as a problem.",
    )
    cache_size: int = Field(
        default=10_000,  # Source: chosen; 16 MB of vectors of width 384
        alias="LOOM_EMBEDDING_CACHE_SIZE",
        ge=0,
        le=10_000_000,
        description="Most vectors of queries that the process keeps; 0 keeps none.",
    )
    cache_ttl_s: float = Field(
        default=3600.0,  # Source: chosen; a vector never goes stale, so this only bounds how long texts leave a trace
        alias="LOOM_EMBEDDING_CACHE_TTL_S",
        gt=0,
        le=30 * 86_400,
        description="How long a vector is kept, in the process and in the shared cache, in seconds.",
    )
    threads: int = Field(
        default_factory=_default_threads,
        alias="LOOM_EMBEDDING_THREADS",
        ge=1,
        le=256,
        description="Batches that a local model computes at once for stored texts, and as many for queries; each takes "
        "one processor.",
        json_schema_extra={"shown_default": "processors, at most 4"},
    )
    queue_size: int = Field(
        default=4096,  # Source: chosen; about half a minute of work on two processors
        alias="LOOM_EMBEDDING_QUEUE_SIZE",
        ge=1,
        le=1_000_000,
        description="Texts that may wait to be embedded before further calls are refused as OVERLOADED.",
    )

    cache_shared_max_chars: int | None = Field(
        default=None,
        alias="LOOM_EMBEDDING_CACHE_SHARED_MAX_CHARS",
        ge=0,
        le=100_000,
        description="Longest text, in characters, whose vector is kept in the database for other processes; 0 keeps "
        "none. Unset: 2,000 where a provider is asked over the network, else 0, because a local model embeds a short "
        "text as fast as the database finds it.",
        json_schema_extra={"shown_default": "2000 with a remote provider, else 0"},
    )
    adaptive_thresholds: bool = Field(
        default=True,
        alias="LOOM_ADAPTIVE_THRESHOLDS",
        description="Whether thresholds are measured from the model's own cosines. Off: the settings of the services "
        "that search decide, which were tuned for text-embedding-3-small.",
    )
    calibration_refresh_s: float = Field(
        default=60.0,
        alias="LOOM_CALIBRATION_REFRESH_SECONDS",
        ge=1,
        le=86_400,
        description="Time between two looks at the calibration that the replicas share, in seconds.",
    )
    recalibration_enabled: bool = Field(
        default=True,
        alias="LOOM_RECALIBRATION_ENABLED",
        description="Whether one replica measures the model again every week.",
    )

    @field_validator("code_search_vector_models", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        return tuple(part.strip() for part in value.split(",") if part.strip())

    @property
    def keys(self) -> dict[str, str]:
        """The keys that are set, by provider."""
        given = {OPENAI: self.openai_api_key, GEMINI: self.gemini_api_key or self.google_api_key}
        return {provider: key.get_secret_value() for provider, key in given.items() if key is not None}

    @property
    def reachable(self) -> frozenset[str]:
        """Remote providers that can be called: their key is set, or another server is named, which may need none."""
        named = {OPENAI: self.openai_base_url != OPENAI_BASE_URL, GEMINI: self.gemini_base_url != _GEMINI_BASE_URL}
        return frozenset(self.keys) | {provider for provider, another in named.items() if another}

    @property
    def models_dir(self) -> Path:
        """Directory of local models."""
        return self.model_dir if self.model_dir is not None else self.data_dir / "models"
