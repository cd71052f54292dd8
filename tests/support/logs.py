"""Log lines as a process of Loom writes them."""

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from loom_common.logging import configure_logging


@contextmanager
def captured_logs() -> Iterator[io.StringIO]:
    """Yields where this process's lines go while it is entered, all of them; puts logging back as it was."""
    root, manager = logging.getLogger(), logging.Logger.manager
    handlers, level = root.handlers[:], root.level
    levels = {name: found.level for name, found in manager.loggerDict.items() if isinstance(found, logging.Logger)}
    stream = io.StringIO()
    configure_logging("debug", "json", stream=stream)
    try:
        yield stream
    finally:
        root.handlers[:], root.level = handlers, level
        for name, was in levels.items():
            logging.getLogger(name).setLevel(was)
        logging.captureWarnings(False)
        structlog.reset_defaults()
