import io
import json
import logging
import warnings

import pytest
import structlog
from opentelemetry.sdk.trace import TracerProvider

from loom_common.call import Call, Scope, bind
from loom_common.logging import configure_logging


@pytest.fixture
def restored():
    """Puts the process's logging back as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    quiet = {name: logging.getLogger(name).level for name in ("httpx", "grpc", "asyncio", "mcp", "openai")}
    yield
    root.handlers[:], root.level = handlers, level
    for name, was in quiet.items():
        logging.getLogger(name).setLevel(was)
    logging.captureWarnings(False)
    structlog.reset_defaults()


@pytest.fixture
def output(restored):
    return io.StringIO()


def lines(output):
    return [json.loads(line) for line in output.getvalue().splitlines()]


def test_each_line_is_json_with_its_facts_and_the_name_of_the_process(output):
    configure_logging("info", "json", stream=output, service="memory")
    logging.getLogger("loom_memory.x").info("stored %d rows", 3, extra={"rows": 3})
    structlog.get_logger("loom_memory.y").warning("slow", took_s=1.5)
    first, second = lines(output)
    assert (first["event"], first["rows"], first["logger"], first["level"]) == (
        "stored 3 rows",
        3,
        "loom_memory.x",
        "info",
    )
    assert (second["event"], second["took_s"], second["service"]) == ("slow", 1.5, "memory")
    assert second["timestamp"].endswith("Z")


def test_each_line_of_a_call_names_the_call(output):
    configure_logging("info", "json", stream=output)
    with bind(Call(op="memory.get", request_id="r1", scope=Scope("acme", "notes"), peer_service="gateway")):
        logging.getLogger("x").info("one")
        structlog.get_logger("y").info("two", org="stated")
    logging.getLogger("x").info("three")
    first, second, third = lines(output)
    assert [first[key] for key in ("op", "request_id", "org", "namespace", "peer")] == [
        "memory.get",
        "r1",
        "acme",
        "notes",
        "gateway",
    ]
    assert second["org"] == "stated"
    assert "request_id" not in third


def test_each_line_of_a_span_names_the_trace(output):
    configure_logging("info", "json", stream=output)
    with TracerProvider().get_tracer("t").start_as_current_span("s") as span:
        logging.getLogger("x").info("one")
    (line,) = lines(output)
    assert int(line["trace_id"], 16) == span.get_span_context().trace_id


@pytest.mark.parametrize("form", ["json", "console"])
def test_secrets_are_in_no_form(output, form):
    configure_logging("info", form, stream=output)
    log = logging.getLogger("x")
    log.info("calling with Bearer abcdef123456", extra={"authorization": "hunter22", "more": {"api_key": "hunter33"}})
    structlog.get_logger("y").info("x", url="http://u:hunter44@h")
    try:
        raise ValueError("password=hunter55")
    except ValueError:
        log.exception("failed")
    shown = output.getvalue()
    for secret in ("abcdef123456", "hunter22", "hunter33", "hunter44", "hunter55"):
        assert secret not in shown
    assert "ValueError" in shown


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_value_cannot_forge_a_line(output, form):
    configure_logging("info", form, stream=output)
    logging.getLogger("x").info("key is %s", "a\n2026-11-30T00:00:00Z [error] forged", extra={"k\nforged": "v\nforged"})
    try:
        raise ValueError("a\n2026-11-30T00:00:00Z [error] forged")
    except ValueError:
        logging.getLogger("x").exception("failed")
    assert not [line for line in output.getvalue().splitlines() if line.startswith(("2026-11-30T00", "forged"))]


def test_a_second_call_replaces_the_first_and_leaves_other_handlers(output):
    other = logging.NullHandler()
    logging.getLogger().addHandler(other)
    configure_logging("info", "json", stream=io.StringIO())
    configure_logging("warning", "json", stream=output)
    logging.getLogger("x").info("not shown")
    structlog.get_logger("x").info("not shown")
    logging.getLogger("x").warning("shown")
    assert [line["event"] for line in lines(output)] == ["shown"]
    assert other in logging.getLogger().handlers


def test_chatty_libraries_speak_from_warning_on_even_at_debug(output):
    configure_logging("debug", "json", stream=output)
    logging.getLogger("httpx").info("POST with a body")
    logging.getLogger("loom_memory").debug("ours")
    assert [line["event"] for line in lines(output)] == ["ours"]


def test_auto_is_json_where_nobody_watches(output):
    configure_logging("info", "auto", stream=output)
    logging.getLogger("x").info("one")
    assert lines(output)[0]["event"] == "one"


def test_warnings_of_python_are_lines_too(output):
    configure_logging("info", "json", stream=output)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old api", UserWarning, stacklevel=1)
    assert "old api" in lines(output)[0]["event"]


def test_a_line_with_too_many_facts_is_bounded_and_strange_ones_do_not_break_it(output):
    configure_logging("info", "json", stream=output)
    logging.getLogger("x").info("many", extra={f"k{n}": object() for n in range(500)})
    (line,) = lines(output)
    assert len(line) <= 60
