"""Settings of memory."""

from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import NoDecode

from loom_common.settings import ALLOWED_KEY
from loom_memory.context.settings import ContextSettings
from loom_memory.conversations.settings import ConversationSettings
from loom_memory.guides.settings import GuideSettings
from loom_memory.knowledge.settings import KnowledgeSettings
from loom_memory.profiles.settings import ProfileSettings
from loom_memory.sessions.settings import SessionSettings
from loom_memory.settings_background import BackgroundSettings
from loom_memory.unified.settings import UnifiedSettings


class MemorySettings(
    KnowledgeSettings,
    ContextSettings,
    ConversationSettings,
    GuideSettings,
    BackgroundSettings,
    ProfileSettings,
    SessionSettings,
    UnifiedSettings,
):
    """What memory reads."""

    embed_bound_s: float = Field(
        default=2.5,
        alias="LOOM_MEMORY_SEARCH_EMBED_BOUND_S",
        gt=0,
        le=60,
        description="Time that one attempt to embed a query may take, in seconds; beyond it a search answers "
        "EMBED_TIMEOUT.",
    )
    embed_bound_retries: int = Field(
        default=1,
        alias="LOOM_MEMORY_SEARCH_EMBED_BOUND_RETRIES",
        ge=0,
        le=5,
        description="Further attempts to embed a query after the bound has passed, 0 to 5.",
    )
    fanout_kinds: Annotated[tuple[str, ...], NoDecode] = Field(
        default=("memory",),
        alias="LOOM_MEMORY_SEARCH_FANOUT_KINDS",
        description="Kinds of namespaces that a search over all of a caller's namespaces reads, separated by commas.",
        json_schema_extra={ALLOWED_KEY: "names separated by commas"},
    )
    fanout_max_namespaces: int = Field(
        default=8,
        alias="LOOM_MEMORY_SEARCH_FANOUT_MAX_NAMESPACES",
        ge=0,
        le=64,
        description="Most namespaces that such a search reads beside the addressed one, 0 to 64.",
    )
    sweep_interval_s: float = Field(
        default=3600.0,
        alias="LOOM_MEMORY_SWEEP_INTERVAL_S",
        ge=1,
        le=86_400,
        description="Time between two passes that remove what interrupted and superseded writes left, in seconds.",
    )
    # Source: chosen. A month in which a mistaken deletion can still be taken back.
    purge_after_days: float = Field(
        default=30.0,
        alias="LOOM_PURGE_AFTER_DAYS",
        ge=0,
        le=36_500,
        description="Time after which deleted and expired memories are removed from the store's files, with their "
        "versions, vectors and what was derived of them, in days. 0: at the next pass.",
    )
    purge_interval_s: float = Field(
        default=3600.0,
        alias="LOOM_PURGE_INTERVAL_S",
        ge=1,
        le=86_400,
        description="Time between two passes that remove what is to be removed by then, in seconds.",
    )
    fallback_max_llm_calls: int = Field(
        default=2,
        alias="LOOM_MEMORY_SEARCH_FALLBACK_MAX_LLM_CALLS",
        ge=0,
        le=16,
        description="Most calls to a model that one search makes to put its question another way, where its recipe or "
        "its request lets models help. 0 turns them off. A reranker is not counted.",
    )
    hyde_timeout_s: float = Field(
        default=6.0,
        alias="LOOM_MEMORY_SEARCH_HYDE_TIMEOUT_S",
        gt=0,
        le=300,
        description="Longest wait of a search for each of them, in seconds; then it goes on without.",
    )
    exposure_ledger_enabled: bool = Field(
        default=True,
        alias="LOOM_MEMORY_EXPOSURE_LEDGER_ENABLED",
        description="Whether it is recorded which memories searches, answers and reads show to whom, by key and place. "
        "The assistant's citations are checked by it, and what is recalled often ranks a little higher.",
    )
    # Source: chosen. A month to look back on, by the longest.
    trace_days: int = Field(
        default=31,
        alias="LOOM_MEMORY_SEARCH_TRACE_DAYS",
        ge=0,
        le=400,
        description="Days that searches are kept as they were asked, so that `loom replay` can ask them again another "
        "way. Those of restricted namespaces never are. 0 keeps none.",
    )
    retrieval_judge_sample_rate: float = Field(
        default=0.0,
        alias="LOOM_RETRIEVAL_JUDGE_SAMPLE_RATE",
        ge=0,
        le=1,
        description="Share of searches whose hits a model judges afterwards, 0 to 1; none under LOOM_READS_LLM_FREE.",
    )
    # Source: chosen. As much as the process takes without it; about 200,000 memories of a chat's length.
    tier_max_mb: int = Field(
        default=512,
        alias="LOOM_MEMORY_TIER_MAX_MB",
        ge=0,
        le=1_048_576,
        description="Memory that namespaces which are searched often may take in this process, so that a search of "
        "them needs no database statement, in MB; about 2.5 MB for 1,000 memories. 0 turns it off.",
    )
    # Where nothing is calibrated. Source: chosen for text-embedding-3-small; no bench here has measured it.
    min_similarity: float | None = Field(
        default=None,
        alias="LOOM_MEMORY_SEARCH_MIN_SIMILARITY",
        ge=-1,
        lt=1,
        description="Cosine at or under which two texts count as unrelated. Set, it holds against every calibration. "
        "Unset: what the model's calibration says, else the model's own constant.",
    )
    abstain_threshold: float = Field(
        default=0.35,
        alias="LOOM_MEMORY_SEARCH_ABSTAIN_THRESHOLD",
        ge=-1,
        le=1,
        description="Best cosine under which a search answers nothing, where nothing is calibrated.",
    )
    query_rewrite_threshold: float = Field(
        default=0.4,
        alias="LOOM_MEMORY_SEARCH_QUERY_REWRITE_THRESHOLD",
        ge=-1,
        le=1,
        description="Best cosine under which a search may try the query in other words, where nothing is calibrated.",
    )
    hyde_fallback_threshold: float = Field(
        default=0.45,
        alias="LOOM_MEMORY_SEARCH_HYDE_FALLBACK_THRESHOLD",
        ge=-1,
        le=1,
        description="Best cosine under which a search may look for what an answer would look like, where nothing is "
        "calibrated.",
    )
    rerank_skip_above: float = Field(
        default=0.65,
        alias="LOOM_LLM_RERANK_SKIP_ABOVE",
        ge=-1,
        le=1,
        description="Best cosine above which a search is not reranked, where nothing is calibrated.",
    )
    conflict_threshold: float = Field(
        default=0.75,
        alias="LOOM_CONFLICT_THRESHOLD",
        ge=-1,
        le=1,
        description="Cosine from which two memories may contradict each other, where nothing is calibrated.",
    )
    duplicate_threshold: float = Field(
        default=0.85,
        alias="LOOM_DUPLICATE_THRESHOLD",
        ge=-1,
        le=1,
        description="Cosine from which two memories may say the same, where nothing is calibrated.",
    )

    conflict_resolver_enabled: bool | None = Field(
        default=None,
        alias="LOOM_MEMORY_CONFLICT_RESOLVER_ENABLED",
        description="Whether a model judges memories that contradict each other, after they were written. Unset: on, "
        "unless the served model is the fake.",
    )
    conflict_resolver_model: str = Field(
        default="gpt-6.1-sol",
        alias="LOOM_CONFLICT_RESOLVER_MODEL",
        max_length=128,
        json_schema_extra={ALLOWED_KEY: "a model's name"},
        description="Model that judges them. Empty: the served one. Where its provider has no key nothing is judged.",
    )

    @field_validator("fanout_kinds", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        return tuple(part.strip() for part in value.split(",") if part.strip())

    @property
    def identifying(self) -> tuple[str, ...]:
        """Names of the settings in force by which calls to models have to say whom they are for."""
        found = {
            "LOOM_INFERENCE_CUSTOMER_HEADER": self.inference_customer_header,
            "LOOM_INFERENCE_CUSTOMER_REQUIRED": self.inference_customer_required,
            "LOOM_INFERENCE_IDENTITY_HEADERS_JSON": self.inference_identity_headers,
        }
        return tuple(name for name, value in found.items() if value)
