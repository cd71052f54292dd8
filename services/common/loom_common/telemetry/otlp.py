"""Export over OTLP/gRPC to a collector: spans, metrics and log lines."""

from typing import Final

from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

# Source: chosen. One export that takes longer is given up; a collector on the same network answers in milliseconds.
_EXPORT_TIMEOUT_S: Final = 5.0


def metric_reader(endpoint: str) -> MetricReader:
    """Returns a reader that sends metrics to the collector now and then."""
    return PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=endpoint, timeout=_EXPORT_TIMEOUT_S))


def export_spans(provider: TracerProvider, endpoint: str) -> None:
    """Lets the provider's spans go to the collector."""
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, timeout=_EXPORT_TIMEOUT_S)))


def logger_provider(resource: Resource, endpoint: str) -> LoggerProvider:
    """Returns a provider whose lines go to the collector."""
    provider = LoggerProvider(resource, shutdown_on_exit=False)
    provider.add_log_record_processor(
        BatchLogRecordProcessor(OTLPLogExporter(endpoint=endpoint, timeout=_EXPORT_TIMEOUT_S))
    )
    return provider
