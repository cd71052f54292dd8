"""The mark that every statement carries, so that it can be found in the engine and killed alone."""

import itertools
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from loom_common.call import current
from loom_common.clickhouse.protocol import Parameters, Settings

_TAG: ContextVar[str] = ContextVar("loom_statement_tag", default="")

_PROCESS = f"{os.getpid():x}{secrets.token_hex(4)}"
_COUNTER = itertools.count(1)

_PARAMETER_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\s*:")


@contextmanager
def tagged(tag: str) -> Iterator[None]:
    """Marks the statements of a block with `tag`, for work that no request started (workers, migrations)."""
    token = _TAG.set(tag)
    try:
        yield
    finally:
        _TAG.reset(token)


def next_log_comment() -> str:
    """Returns the block's tag, else the running call's, with a suffix that no other statement of any process has."""
    return f"{_TAG.get() or current().statement_tag} {_PROCESS}-{next(_COUNTER):x}"


def with_statement_settings(settings: Settings | None, timeout_s: float) -> dict[str, str | int | float]:
    """Returns the statement's settings with its time limit and its unique mark.

    A `log_comment` that the caller passes is kept: the caller then answers for its being unique.
    """
    return {"max_execution_time": round(timeout_s, 3), "log_comment": next_log_comment(), **(settings or {})}


def check_bound(sql: str, parameters: Parameters | None) -> dict[str, object]:
    """Returns the parameters after checking that the statement binds each by a `{name:Type}` placeholder.

    The driver falls back to formatting values into the text when it finds no placeholder, which must never happen.

    Raises:
        ValueError: A parameter without a placeholder, or a placeholder without a parameter.
    """
    given = dict(parameters or {})
    placed = set(_PLACEHOLDER.findall(sql))
    for name in given:
        if not _PARAMETER_NAME.match(name):
            raise ValueError(f"not a parameter name: {name!r}")
    if placed != set(given):
        raise ValueError(f"statement and parameters differ in {sorted(placed ^ set(given))}")
    return given
