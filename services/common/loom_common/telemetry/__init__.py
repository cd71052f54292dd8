"""Traces, metrics and log export through OpenTelemetry."""

from loom_common.telemetry.metrics import METRICS, Kind, Metric, add, metrics_markdown, observe
from loom_common.telemetry.setup import PROMETHEUS_CONTENT_TYPE, Telemetry, prometheus_text

__all__ = [
    "METRICS",
    "PROMETHEUS_CONTENT_TYPE",
    "Kind",
    "Metric",
    "Telemetry",
    "add",
    "metrics_markdown",
    "observe",
    "prometheus_text",
]
