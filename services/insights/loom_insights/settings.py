"""Settings of insights."""

from pydantic import Field

from loom_common.settings import SealingSettings
from loom_insights.domain.analysis import AnalysisLimits


class InsightsSettings(SealingSettings):
    """What insights reads: the limits of analyses, and how often their boundary is looked at."""

    analysis_time_s: float = Field(
        default=10.0,
        alias="LOOM_CH_ANALYSIS_TIME_S",
        ge=0.1,
        le=300,
        description="Longest time of one statement of `insights.query`, in seconds.",
    )
    analysis_read_rows: int = Field(
        default=50_000_000,
        alias="LOOM_CH_ANALYSIS_READ_ROWS",
        ge=1_000,
        description="Most rows that one statement of `insights.query` may read.",
    )
    analysis_memory_bytes: int = Field(
        default=512 << 20,
        alias="LOOM_CH_ANALYSIS_MEMORY_BYTES",
        ge=16 << 20,
        description="Memory of one statement of `insights.query`, in bytes; at least 16 MiB.",
    )
    analysis_result_rows: int = Field(
        default=10_000,
        alias="LOOM_CH_ANALYSIS_RESULT_ROWS",
        ge=1,
        le=1_000_000,
        description="Most rows of one answer of `insights.query`; a longer one is an error and is not cut off.",
    )
    analysis_result_bytes: int = Field(
        default=4 << 20,
        alias="LOOM_CH_ANALYSIS_RESULT_BYTES",
        ge=1 << 16,
        le=6 << 20,
        description="Largest answer of `insights.query`, in bytes, 64 KiB to 6 MiB.",
    )
    analysis_threads: int = Field(
        default=2,
        alias="LOOM_CH_ANALYSIS_THREADS",
        ge=1,
        le=64,
        description="Threads of one statement of `insights.query`.",
    )
    analysis_concurrent_per_org: int = Field(
        default=2,
        alias="LOOM_CH_ANALYSIS_CONCURRENT_PER_ORG",
        ge=1,
        le=64,
        description="Statements of `insights.query` of one organisation that one replica runs at once.",
    )
    analysis_concurrent: int = Field(
        default=8,
        alias="LOOM_CH_ANALYSIS_CONCURRENT",
        ge=1,
        le=256,
        description="Statements of `insights.query` of all organisations that run at once.",
    )
    analysis_probe_interval_s: float = Field(
        default=60.0,
        alias="LOOM_CH_ANALYSIS_PROBE_INTERVAL_S",
        ge=1,
        le=3600,
        description="How often each replica proves that the boundary around analyses holds, in seconds.",
    )

    def analysis_limits(self) -> AnalysisLimits:
        """Returns what one statement may take."""
        return AnalysisLimits(
            time_s=self.analysis_time_s,
            read_rows=self.analysis_read_rows,
            memory_bytes=self.analysis_memory_bytes,
            result_rows=self.analysis_result_rows,
            result_bytes=self.analysis_result_bytes,
            threads=self.analysis_threads,
        )
