"""Settings of asking, of extraction and of the workers."""

from typing import Annotated

from pydantic import Field, field_validator
from pydantic.config import JsonDict
from pydantic_settings import NoDecode

from loom_common.settings import ALLOWED_KEY, InferenceSettings

_NAMES: JsonDict = {ALLOWED_KEY: "names separated by commas"}
_MODEL: JsonDict = {ALLOWED_KEY: "a model's name"}


class BackgroundSettings(InferenceSettings):
    """What memory reads of its calls to language models and of its work in the background."""

    ask_synth_model: str = Field(
        default="",
        alias="LOOM_MEMORY_ASK_SYNTH_MODEL",
        max_length=128,
        json_schema_extra=_MODEL,
        description="Model that answers open questions of memory.ask. Unset: the served one.",
    )
    ask_synth_model_cheap: str = Field(
        default="",
        alias="LOOM_MEMORY_ASK_SYNTH_MODEL_CHEAP",
        max_length=128,
        json_schema_extra=_MODEL,
        description="Model that answers short questions over at most three memories. Unset: the next larger stage's.",
    )
    ask_mid_model: str = Field(
        default="",
        alias="LOOM_MEMORY_ASK_MID_MODEL",
        max_length=128,
        json_schema_extra=_MODEL,
        description="Model that answers questions between short and open ones. Unset: LOOM_MEMORY_ASK_SYNTH_MODEL.",
    )
    ask_llm_cache_default: bool = Field(
        default=True,
        alias="LOOM_MEMORY_ASK_LLM_CACHE_DEFAULT",
        description="Whether answers of memory.ask may be kept and given again, where neither the request nor the "
        "namespace says so.",
    )
    ask_llm_cache_namespaces: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        alias="LOOM_MEMORY_ASK_LLM_CACHE_NAMESPACES",
        json_schema_extra=_NAMES,
        description="Namespaces whose answers may be kept although LOOM_MEMORY_ASK_LLM_CACHE_DEFAULT is off, separated "
        "by commas.",
    )
    ask_timeout_s: float = Field(
        default=60.0,  # Source: chosen; a slow model writes five sentences in half of it
        alias="LOOM_MEMORY_ASK_TIMEOUT_S",
        gt=0,
        le=1800,
        description="Time that a model may take for an answer of memory.ask, in seconds; beyond it the answer is made "
        "of the memories' own words.",
    )
    extract_verify_models: Annotated[tuple[str, ...], NoDecode] = Field(
        default=("claude-opus-5-5",),
        alias="LOOM_MEMORY_EXTRACT_VERIFY_MODELS",
        json_schema_extra=_NAMES,
        description="Models that check facts of coding work before they are stored, separated by commas; the first "
        "that answers counts, and where none does the facts are stored unchecked. Empty: none.",
    )
    extract_deadline_s: float = Field(
        default=240.0,  # Source: chosen; four calls of a minute
        alias="LOOM_MEMORY_EXTRACT_DEADLINE_S",
        gt=0,
        le=3600,
        description="Time that one attempt at one conversation may take, at once or in the background, in seconds.",
    )
    extract_concurrency: int = Field(
        default=4,
        alias="LOOM_MEMORY_EXTRACT_CONCURRENCY",
        ge=1,
        le=64,
        description="Conversations that the extraction worker works on at once; at most half of them for one writer.",
    )
    extract_max_attempts: int = Field(
        default=8,  # Source: chosen; with the waits between them a provider may be away for an hour
        alias="LOOM_MEMORY_EXTRACT_MAX_ATTEMPTS",
        ge=1,
        le=100,
        description="Attempts after which a conversation is given up; `loom workers list-dead` shows it then.",
    )
    entity_extract_enabled: bool = Field(
        default=True,
        alias="LOOM_ENTITY_EXTRACT_ENABLED",
        description="Whether a worker finds the people, places and things that memories name: with a model where one "
        "is served, else by their form.",
    )
    observe_extract_enabled: bool = Field(
        default=False,
        alias="LOOM_OBSERVE_EXTRACT_ENABLED",
        description="Whether a worker has a model note what several memories of a user show together.",
    )
    reflection_enabled: bool = Field(
        default=False,
        alias="LOOM_REFLECTION_DISTILL_ENABLED",
        description="Whether a worker has a model sum up sessions that have ended.",
    )
    period_digest_enabled: bool = Field(
        default=False,
        alias="LOOM_PERIOD_DIGEST_ENABLED",
        description="Whether a worker has a model sum up what was remembered on each day.",
    )

    @field_validator("ask_llm_cache_namespaces", "extract_verify_models", mode="before")
    @classmethod
    def _parts(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        return tuple(part.strip() for part in value.split(",") if part.strip())
