"""Log lines: JSON or readable, each with the call it belongs to, none with a secret.

Code logs with the standard library (`logging.getLogger(__name__)`, facts in `extra`) or with structlog; both end in
the same chain. Libraries' lines pass it too.
"""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Final, Literal, TextIO

import structlog
from opentelemetry import trace
from structlog.typing import EventDict, Processor, WrappedLogger

from loom_common import call
from loom_common.redaction import scrub, scrub_lines, scrub_value

LogFormat = Literal["auto", "json", "console"]

# Chatty at `info`, with texts of requests in them; they speak from `warning` on, whatever the level.
_QUIET: Final = (
    *("aiohttp", "anthropic", "asyncio", "clickhouse_connect", "grpc", "httpcore", "httpcore2", "httpx", "httpx2"),
    *("mcp", "openai"),
)
_KEPT_KEYS: Final = frozenset({"event", "exception", "timestamp", "level"})
_MAX_KEYS: Final = 60


class _Output(logging.StreamHandler[TextIO]):
    """The handler that a second call of `configure_logging` replaces."""


def configure_logging(
    level: str = "info", form: LogFormat = "auto", *, stream: TextIO | None = None, service: str = ""
) -> None:
    """Routes all logging of this process through one chain to one stream. Called once, at the start.

    Args:
        level: Least severe level: `debug`, `info`, `warning` or `error`.
        form: `json`, `console`, or `auto`: console on a terminal, else JSON.
        stream: Where lines go. Default: standard error.
        service: Name of the process, in every JSON line.
    """
    target = stream if stream is not None else sys.stderr
    handler = _Output(target)
    handler.setFormatter(formatter(form if form != "auto" else _form_for(target), service=service))
    root = logging.getLogger()
    for old in root.handlers[:]:
        if isinstance(old, _Output):
            root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    logging.captureWarnings(True)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_before(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def formatter(form: Literal["json", "console"], *, service: str = "") -> logging.Formatter:
    """Returns the formatter of one form, for a further handler that must write the same scrubbed lines."""
    last: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, _scrubbed]
    if form == "json":
        if service:
            last.append(_named(service))
        last.append(structlog.processors.JSONRenderer(ensure_ascii=False, default=str))
    else:
        last += [
            _indented,
            structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
        ]
    return structlog.stdlib.ProcessorFormatter(foreign_pre_chain=_before(), processors=last)


def _form_for(stream: TextIO) -> Literal["json", "console"]:
    return "console" if stream.isatty() else "json"


def _before() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _with_call,
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
    ]


def _with_call(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Adds what the running call is; values that the line itself states win."""
    running = call.current_or_none()
    if running is not None:
        facts = {
            "request_id": running.request_id,
            "op": running.op,
            "org": running.scope.org if running.scope else "",
            "namespace": running.scope.namespace if running.scope else "",
            "peer": running.peer_service or "",
        }
        for key, value in facts.items():
            if value:
                event.setdefault(key, value)
    span = trace.get_current_span().get_span_context()
    if span.is_valid:
        event.setdefault("trace_id", trace.format_trace_id(span.trace_id))
        event.setdefault("span_id", trace.format_span_id(span.span_id))
    return event


def _scrubbed(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    cleaned: MutableMapping[str, Any] = {}  # Any: what callers log
    for key, value in list(event.items())[:_MAX_KEYS]:
        if key == "exception":
            cleaned[key] = scrub_lines(str(value))
        elif key in _KEPT_KEYS:
            cleaned[key] = scrub(str(value))
        else:
            cleaned[scrub(str(key), limit=128)] = scrub_value(value, name=str(key))
    return cleaned


def _indented(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Sets a trace off from log lines: a line of it, which may hold a caller's text, cannot pass for one of its own."""
    if "exception" in event:
        event["exception"] = "\n".join(f"  | {line}" for line in str(event["exception"]).split("\n"))
    return event


def _named(service: str) -> Processor:
    def add(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event.setdefault("service", service)
        return event

    return add
