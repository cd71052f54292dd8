import logging
import os
import socket
import subprocess
import sys
import time

import grpc
import pytest
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from loom_common.telemetry import METRICS, Kind, Telemetry, add, metrics_markdown, observe
from loom_common.telemetry.logs import OtlpLogHandler


class TraceSink(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self):
        self.got = []

    def Export(self, request, context):
        self.got.append(request)
        return trace_service_pb2.ExportTraceServiceResponse()


class MetricSink(metrics_service_pb2_grpc.MetricsServiceServicer):
    def __init__(self):
        self.got = []

    def Export(self, request, context):
        self.got.append(request)
        return metrics_service_pb2.ExportMetricsServiceResponse()


class LogSink(logs_service_pb2_grpc.LogsServiceServicer):
    def __init__(self):
        self.got = []

    def Export(self, request, context):
        self.got.append(request)
        return logs_service_pb2.ExportLogsServiceResponse()


@pytest.fixture
def collector():
    """Runs a collector in this process that keeps what it gets."""
    from concurrent.futures import ThreadPoolExecutor

    server = grpc.server(ThreadPoolExecutor(2))
    sinks = TraceSink(), MetricSink(), LogSink()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(sinks[0], server)
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(sinks[1], server)
    logs_service_pb2_grpc.add_LogsServiceServicer_to_server(sinks[2], server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"http://127.0.0.1:{port}", *sinks
    server.stop(None).wait(5)


def record(name):
    return logging.LogRecord("loom_memory.x", logging.WARNING, "f.py", 1, name, (), None)


def test_spans_metrics_and_scrubbed_lines_reach_the_collector(collector):
    endpoint, traces, metrics, logs = collector
    telemetry = Telemetry("memory", "1.2.3", otlp_endpoint=endpoint)
    with telemetry.tracer_provider.get_tracer("t").start_as_current_span("memory.set"):
        OtlpLogHandler(telemetry.logger_provider).handle(record("password=hunter22"))
    telemetry.meter_provider.get_meter("t").create_counter("loom.test").add(1)
    assert telemetry.shutdown(10)

    (resource_spans,) = traces.got[0].resource_spans
    names = {pair.key: pair.value.string_value for pair in resource_spans.resource.attributes}
    assert (names["service.name"], names["service.version"], names["service.namespace"]) == ("memory", "1.2.3", "loom")
    span = resource_spans.scope_spans[0].spans[0]
    assert span.name == "memory.set"
    line = logs.got[0].resource_logs[0].scope_logs[0].log_records[0]
    assert line.body.string_value == "password=[secret]"
    assert line.trace_id == span.trace_id
    assert "loom.test" in str(metrics.got)


def test_lines_of_the_exporter_itself_are_not_exported(collector):
    endpoint, _, _, logs = collector
    telemetry = Telemetry("memory", "1", otlp_endpoint=endpoint)
    handler = OtlpLogHandler(telemetry.logger_provider)
    handler.handle(logging.LogRecord("opentelemetry.exporter", logging.ERROR, "f", 1, "failed", (), None))
    assert telemetry.shutdown(10)
    assert logs.got == []


def test_without_a_collector_nothing_is_exported_and_the_end_is_at_once():
    telemetry = Telemetry("memory", "1")
    assert telemetry.logger_provider is None
    with telemetry.tracer_provider.get_tracer("t").start_as_current_span("x") as span:
        assert span.get_span_context().is_valid
    begun = time.monotonic()
    assert telemetry.shutdown(5)
    assert time.monotonic() - begun < 2


def test_a_collector_that_never_answers_does_not_hold_the_end():
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        telemetry = Telemetry("memory", "1", otlp_endpoint=f"http://127.0.0.1:{deaf.getsockname()[1]}")
        telemetry.tracer_provider.get_tracer("t").start_span("x").end()
        begun = time.monotonic()
        telemetry.shutdown(0.3)
        assert time.monotonic() - begun < 2


def test_prometheus_text_holds_our_metrics_alone():
    before = list(REGISTRY.collect())
    telemetry = Telemetry("gateway", "1")
    histogram = telemetry.meter_provider.get_meter("loom").create_histogram("loom.rpc.server.duration", "s")
    histogram.record(0.2, {"op": "memory.set"})
    families = {family.name: family for family in text_string_to_metric_families(telemetry.prometheus_text().decode())}
    assert set(families) == {"target_info", "loom_rpc_server_duration_seconds"}
    sample = next(s for s in families["loom_rpc_server_duration_seconds"].samples if s.name.endswith("_count"))
    assert (sample.value, sample.labels["op"]) == (1.0, "memory.set")
    assert len(list(REGISTRY.collect())) == len(before)
    telemetry.shutdown()


INSTALLED = """
from loom_common.telemetry import Telemetry, add, observe, prometheus_text
add("loom.ledger.rows", 1, outcome="early")  # made before anything is installed, and lost
assert prometheus_text() == b""
telemetry = Telemetry("gateway", "1")
telemetry.install()
add("loom.ledger.rows", 2, outcome="stored")
observe("loom.rpc.server.duration", 0.02, service="memory", op="memory.set", code="OK")
print(prometheus_text().decode())
assert telemetry.shutdown()
"""


def test_instruments_made_before_the_start_record_after_it():
    # In a process of its own: OpenTelemetry takes its providers once per process.
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", INSTALLED],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    assert 'loom_ledger_rows_total{outcome="stored"} 2.0' in done.stdout
    assert 'le="0.025",op="memory.set",service="memory"} 1.0' in done.stdout


def test_metric_names_follow_one_form_and_say_what_they_are():
    for name, row in METRICS.items():
        assert name == row.name
        assert name.startswith("loom.")
        assert name == name.lower()
        assert row.description.endswith(".")
        assert row.unit == "s" if row.kind is Kind.HISTOGRAM else row.unit == "By" or row.unit.startswith("{")
        assert not row.attributes & {"org", "namespace", "user_id", "key", "request_id"}
        assert f"| `{name}` |" in metrics_markdown()


def test_what_is_not_in_the_table_cannot_be_recorded():
    with pytest.raises(KeyError):
        add("loom.unknown")
    with pytest.raises(ValueError):
        add("loom.ledger.rows", 1, org="acme")
    with pytest.raises(ValueError):
        observe("loom.ledger.rows", 1)
    with pytest.raises(ValueError):
        add("loom.rpc.server.duration")


def test_recording_without_a_started_telemetry_is_silent():
    add("loom.ledger.rows", 2, outcome="stored")
    add("loom.rpc.server.active", -1, service="memory", op="memory.set")
    observe("loom.rpc.server.duration", 0.1, service="memory", op="memory.set", code="OK")
