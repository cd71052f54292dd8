"""Log lines over OTLP: the same scrubbed lines that the process writes."""

import json
import logging
from typing import Final

from opentelemetry._logs import LoggerProvider, LogRecord, SeverityNumber
from opentelemetry.context import get_current

from loom_common.logging import formatter

_SEVERITIES: Final = (
    (logging.CRITICAL, SeverityNumber.FATAL),
    (logging.ERROR, SeverityNumber.ERROR),
    (logging.WARNING, SeverityNumber.WARN),
    (logging.INFO, SeverityNumber.INFO),
)
# What the exporter itself says, and the library under it, must not be exported again.
_NOT_EXPORTED: Final = ("opentelemetry", "grpc")
_OWN_KEYS: Final = frozenset({"event", "timestamp", "level", "trace_id", "span_id"})


class OtlpLogHandler(logging.Handler):
    """Hands each line to OpenTelemetry after the scrubbing that every line gets."""

    def __init__(self, provider: LoggerProvider) -> None:
        super().__init__()
        self._provider = provider
        self.setFormatter(formatter("json"))

    def emit(self, record: logging.LogRecord) -> None:
        """Sends one line; a failure is the logging module's to report."""
        if record.name.partition(".")[0] in _NOT_EXPORTED:
            return
        try:
            event = json.loads(self.format(record))
            self._provider.get_logger(record.name).emit(
                LogRecord(
                    timestamp=int(record.created * 1e9),
                    context=get_current(),
                    severity_text=record.levelname,
                    severity_number=_severity(record.levelno),
                    body=event.get("event", ""),
                    attributes={key: _flat(value) for key, value in event.items() if key not in _OWN_KEYS},
                )
            )
        except Exception:  # noqa: BLE001 - a handler never raises into the code that logs
            self.handleError(record)


def _severity(level: int) -> SeverityNumber:
    return next((number for least, number in _SEVERITIES if level >= least), SeverityNumber.DEBUG)


def _flat(value: object) -> str | bool | int | float:
    return value if isinstance(value, (str, bool, int, float)) else json.dumps(value, ensure_ascii=False)
