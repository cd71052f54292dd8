"""What a summary of usage may span and how it is grouped."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from loom_common.errors import InvalidArgument

GroupBy = Literal["op", "subject", "consumer", "model", "status", "day"]

# Source: chosen. A month is what bills and quotas speak of.
DEFAULT_SPAN: Final = timedelta(days=30)
# Source: chosen. Above it a summary reads more than a person waits for.
MAX_SPAN: Final = timedelta(days=366)


@dataclass(frozen=True, slots=True)
class Span:
    """A span of time: `since` is in it, `until` is not."""

    since: datetime
    until: datetime

    @classmethod
    def of(cls, since: datetime | None, until: datetime | None, now: datetime) -> "Span":
        """Returns the span that a request names, with its defaults.

        Raises:
            InvalidArgument: It is empty, runs backwards or is longer than a year.
        """
        end = until or now
        start = since or end - DEFAULT_SPAN
        if start >= end:
            raise InvalidArgument.of("since", "must be before `until`")
        if end - start > MAX_SPAN:
            raise InvalidArgument.of("since", f"must be at most {MAX_SPAN.days} days before `until`")
        return cls(start, end)


@dataclass(frozen=True, slots=True)
class UsageGroup:
    """What one group of calls spent."""

    group: str
    call_count: int
    error_count: int
    latency_p50_ms: float
    latency_p95_ms: float
    embedding_tokens: int
    input_tokens: int
    output_tokens: int
    llm_call_count: int
    upstream_cost_usd: float
