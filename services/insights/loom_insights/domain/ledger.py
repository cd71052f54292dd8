"""What the ledger holds of one call."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One call as it is stored; texts are digests here, never words."""

    request_id: str
    recorder: str
    """Service that recorded it."""
    occurred_at: datetime
    """When the call began; aware, UTC."""
    org: str
    """Organisation addressed; `_none` for a call that named none."""
    namespace: str
    """Namespace addressed; `_none` for a call that named none."""
    op: str
    transport: str
    subject: str
    consumer: str
    run_id: str
    user_id: str
    status: str
    """`ok`, or the reason of the error."""
    refused: bool
    """Whether it was refused before its work began."""
    latency_ms: float
    out_hits: int | None = None
    found: bool | None = None
    args: Mapping[str, str] = field(default_factory=dict)
    """Digests of texts and identifiers kept as they are, by field."""
    out_sql_digest: str = ""
    embedding_tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    llm_calls: int = 0
    upstream_cost_usd: float = 0.0
    out_llm_cache_saved_usd: float = 0.0
    model: str = ""
