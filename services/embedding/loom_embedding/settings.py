"""Settings of the embedding service."""

import os
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from loom_common.settings import CommonSettings, HomePath, LowerCase

# Source: chosen; more threads gain little for batches of this size and take processors from everything else.
_MOST_THREADS: Final = 4


def _default_threads() -> int:
    return min(_MOST_THREADS, len(os.sched_getaffinity(0)))


class EmbeddingSettings(CommonSettings):
    """What the embedding service reads beside the common settings."""

    provider: Annotated[str, LowerCase] | None = Field(
        default=None,
        alias="LOOM_EMBEDDING_PROVIDER",
        description="Provider of vectors: `local` or `fake`. Unset: it follows from LOOM_EMBEDDING_MODEL.",
    )
    model: str | None = Field(
        default=None,
        alias="LOOM_EMBEDDING_MODEL",
        max_length=128,
        description="Model to serve: `local:minilm`, `local:bge-small` (also `local`), `local:bge-base`, or "
        "`fake-ngram-<dim>`. Unset: `local:minilm`.",
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
        description="Width that stored vectors are expected to have. Unset: the model's own. A local model has its own "
        "width whatever this says; another value is shown as a problem.",
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
        description="How long the process keeps a query's vector, in seconds.",
    )
    threads: int = Field(
        default_factory=_default_threads,
        alias="LOOM_EMBEDDING_THREADS",
        ge=1,
        le=256,
        description="Threads that a local model computes with.",
        json_schema_extra={"shown_default": "processors, at most 4"},
    )
    queue_size: int = Field(
        default=4096,  # Source: chosen; about half a minute of work on two processors
        alias="LOOM_EMBEDDING_QUEUE_SIZE",
        ge=1,
        le=1_000_000,
        description="Texts that may wait to be embedded before further calls are refused as OVERLOADED.",
    )

    @property
    def models_dir(self) -> Path:
        """Directory of local models."""
        return self.model_dir if self.model_dir is not None else self.data_dir / "models"
