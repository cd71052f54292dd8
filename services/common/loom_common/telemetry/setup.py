"""Starts and ends OpenTelemetry for one process.

Spans, metrics and log lines go to a collector over OTLP where one is configured, and nowhere otherwise. Metrics can
also be read as Prometheus text: through OpenTelemetry's own exporter, so that code records each fact once, on a
registry of our own, so that nothing else of the process's Python shows up in it.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable
from typing import Final

from opentelemetry import metrics, trace
from opentelemetry._logs import set_logger_provider
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from loom_common.telemetry.logs import OtlpLogHandler

logger = logging.getLogger(__name__)

PROMETHEUS_CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4


class Telemetry:
    """The providers of one process."""

    def __init__(self, service: str, version: str, *, otlp_endpoint: str = "") -> None:
        """Builds the providers; nothing is global and nothing is sent before `install`.

        Args:
            service: Name of the process: a service's, or `loom` where all run in one.
            version: Version of the build.
            otlp_endpoint: Collector, `http://host:port` in plain text or `https://host:port`; empty for none.
        """
        resource = Resource.create(
            {
                "service.namespace": "loom",
                "service.name": service,
                "service.version": version,
                "service.instance.id": str(uuid.uuid4()),
            }
        )
        self._registry = CollectorRegistry()
        readers: list[MetricReader] = [PrometheusMetricReader(scope_info_enabled=False, registry=self._registry)]
        self.tracer_provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self.logger_provider: LoggerProvider | None = None
        self._handler: OtlpLogHandler | None = None
        if otlp_endpoint:
            # Loaded here: the exporters take longer to load than a command line's answer may take.
            from loom_common.telemetry import otlp

            readers.append(otlp.metric_reader(otlp_endpoint))
            otlp.export_spans(self.tracer_provider, otlp_endpoint)
            self.logger_provider = otlp.logger_provider(resource, otlp_endpoint)
            self._handler = OtlpLogHandler(self.logger_provider)
        self.meter_provider = MeterProvider(
            readers, resource=resource, shutdown_on_exit=False, exemplar_filter=AlwaysOffExemplarFilter()
        )

    def install(self) -> None:
        """Makes them the process's own, once: what records spans, metrics and lines finds them from now on."""
        _installed.append(self)
        if self.logger_provider is not None:
            # Without a collector nobody reads spans; those of OpenTelemetry's default only pass a caller's trace on.
            trace.set_tracer_provider(self.tracer_provider)
        metrics.set_meter_provider(self.meter_provider)
        if self.logger_provider is not None and self._handler is not None:
            set_logger_provider(self.logger_provider)
            logging.getLogger().addHandler(self._handler)

    def prometheus_text(self) -> bytes:
        """Returns all metrics of the process in Prometheus' text form; blocks shortly."""
        return generate_latest(self._registry)

    def shutdown(self, timeout_s: float = 5.0) -> bool:
        """Sends what is left and ends; blocks for at most about `timeout_s`.

        Returns:
            Whether everything ended in time. What did not is given up: a collector that is away must not hold a stop.
        """
        if self._handler is not None:
            logging.getLogger().removeHandler(self._handler)
        ends: list[Callable[[], object]] = [self.tracer_provider.shutdown, self.meter_provider.shutdown]
        if self.logger_provider is not None:
            ends.append(self.logger_provider.shutdown)
        # Exporters have no common time limit, so each ends in a thread that the process does not wait for.
        threads = [threading.Thread(target=_quietly, args=(end,), daemon=True) for end in ends]
        deadline = time.monotonic() + timeout_s
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)


# As OpenTelemetry's own providers are: one set per process, which whoever serves metrics has to find.
_installed: list[Telemetry] = []


def prometheus_text() -> bytes:
    """Returns the metrics of the installed telemetry as Prometheus text; empty in a process that has none."""
    return _installed[-1].prometheus_text() if _installed else b""


def _quietly(end: Callable[[], object]) -> None:
    try:
        end()
    except Exception:  # the last word of a thread; the process is ending
        logger.warning("telemetry_shutdown_failed", exc_info=True)
