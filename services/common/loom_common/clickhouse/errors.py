"""Turns what the engine, the driver and the network raise into `LoomError`s; their text is logged, never shown."""

import logging
import re
import struct
from typing import Final

from clickhouse_connect.driver.exceptions import ClickHouseError, DataError

from loom_common.errors import (
    BackendUnavailable,
    Cancelled,
    DeadlineExceeded,
    InternalError,
    LoomError,
    Overloaded,
)

logger = logging.getLogger(__name__)

# What clickhouse-connect, aiohttp and the bare engine raise; LoomError is none of them.
DRIVER_ERRORS: Final = (
    ClickHouseError,
    RuntimeError,
    OSError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    OverflowError,
    struct.error,
)

_CODE = re.compile(r"\bCode:\s*(\d+)")
_NAME = re.compile(r"\(([A-Z][A-Z0-9_]+)\)")
_LOGGED_CHARACTERS = 2000

# What the engine says when its files are gone, cannot be opened or cannot be written: the directory was moved or
# removed under it, or the disk is full, read-only or broken. The statement is not at fault.
_FILE_ERRORS: Final = (
    "CANNOT_APPEND_TO_FILE",
    "CANNOT_CLOSE_FILE",
    "CANNOT_CREATE_DIRECTORY",
    "CANNOT_CREATE_FILE",
    "CANNOT_FSTAT",
    "CANNOT_FSYNC",
    "CANNOT_IO_GETEVENTS",
    "CANNOT_IO_SUBMIT",
    "CANNOT_LINK",
    "CANNOT_OPEN_FILE",
    "CANNOT_READ_ALL_DATA",
    "CANNOT_READ_FROM_FILE_DESCRIPTOR",
    "CANNOT_RMDIR",
    "CANNOT_SEEK_THROUGH_FILE",
    "CANNOT_STAT",
    "CANNOT_STATVFS",
    "CANNOT_TRUNCATE_FILE",
    "CANNOT_UNLINK",
    "CANNOT_WRITE_TO_FILE",
    "CANNOT_WRITE_TO_FILE_DESCRIPTOR",
    "DIRECTORY_DOESNT_EXIST",
    "FILE_DOESNT_EXIST",
    "NO_FILE_IN_DATA_PART",
    "PATH_ACCESS_DENIED",
)

# By symbolic name, as system.errors lists them. What is not here is a statement that should not have been sent.
TRANSLATIONS: Final[dict[str, type[LoomError]]] = {
    "TIMEOUT_EXCEEDED": DeadlineExceeded,
    "TOO_SLOW": DeadlineExceeded,
    "QUERY_WAS_CANCELLED": Cancelled,
    "QUERY_WAS_CANCELLED_BY_CLIENT": Cancelled,
    "MEMORY_LIMIT_EXCEEDED": Overloaded,
    "CANNOT_ALLOCATE_MEMORY": Overloaded,
    "CANNOT_SCHEDULE_TASK": Overloaded,
    "TOO_MANY_PARTS": Overloaded,
    "TOO_MANY_SIMULTANEOUS_QUERIES": Overloaded,
    "SERVER_OVERLOADED": Overloaded,
    "NOT_ENOUGH_SPACE": BackendUnavailable,
    "TABLE_IS_READ_ONLY": BackendUnavailable,
    "READONLY": BackendUnavailable,
    "AUTHENTICATION_FAILED": BackendUnavailable,
    "REQUIRED_PASSWORD": BackendUnavailable,
    "UNKNOWN_DATABASE": BackendUnavailable,
    "NETWORK_ERROR": BackendUnavailable,
    "SOCKET_TIMEOUT": BackendUnavailable,
    "ALL_CONNECTION_TRIES_FAILED": BackendUnavailable,
    "ATTEMPT_TO_READ_AFTER_EOF": BackendUnavailable,
    "KEEPER_EXCEPTION": BackendUnavailable,
    "NO_ZOOKEEPER": BackendUnavailable,
    "TOO_FEW_LIVE_REPLICAS": BackendUnavailable,
    "UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE": BackendUnavailable,
    "UNKNOWN_STATUS_OF_INSERT": BackendUnavailable,
    # A mutation that stopped on what the engine met in its files; the statements that start them are fixed.
    "UNFINISHED": BackendUnavailable,
    "REPLICA_IS_NOT_IN_QUORUM": BackendUnavailable,
    "ABORTED": BackendUnavailable,
    "STD_EXCEPTION": BackendUnavailable,
    **dict.fromkeys(_FILE_ERRORS, BackendUnavailable),
}

# What code of ours raises where it has a defect; without the trace nobody would find the line.
_DEFECTS: Final = (ValueError, TypeError, LookupError, AttributeError, OverflowError, struct.error)
_VALUE_ERRORS: Final = (DataError, *_DEFECTS)

_MESSAGES: Final[dict[type[LoomError], str]] = {
    DeadlineExceeded: "The database did not finish in time.",
    Cancelled: "The statement was cancelled.",
    Overloaded: "The database is at its limit; try again shortly.",
    BackendUnavailable: "The database cannot be reached, or cannot read or write its files.",
    InternalError: "The database refused a statement.",
}


class StatementFailed(Exception):
    """The cause behind a translated error: the engine's numeric code and symbolic name, where it gave them."""

    def __init__(self, code: int | None, name: str | None, *, sent: bool = True) -> None:
        super().__init__(f"{name or 'no name'} ({code if code is not None else 'no code'})")
        self.code = code
        self.name = name
        self.sent = sent

    @property
    def known_unwritten(self) -> bool:
        """Whether nothing of the statement was stored for certain: never sent, or refused by the engine itself."""
        return not self.sent or (self.name is not None and self.name not in TRANSLATIONS)


class AnalystFailure(Exception):
    """The engine refused or ended a statement.

    Attributes:
        cause: Its code and symbolic name.
        text: Its own words, which must not reach a caller as they are.
    """

    def __init__(self, cause: StatementFailed, text: str) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.text = text


def translated(error: BaseException, log_comment: str) -> LoomError:
    """Returns the `LoomError` for what a driver raised, with a `StatementFailed` as its cause, and logs the text."""
    text = str(error)
    failed = StatementFailed(_code(error, text), _name(error, text), sent=not isinstance(error, _VALUE_ERRORS))
    kind = _kind(error, failed)
    level = logging.ERROR if kind is InternalError else logging.WARNING
    logger.log(
        level,
        "statement_failed",
        exc_info=error if isinstance(error, _DEFECTS) and not isinstance(error, ClickHouseError) else None,
        extra={
            "code": failed.code,
            "symbol": failed.name,
            "log_comment": log_comment,
            "text": text[:_LOGGED_CHARACTERS],
        },
    )
    loom_error = kind(_MESSAGES[kind])
    loom_error.__cause__ = failed
    return loom_error


def engine_failure(error: BaseException) -> StatementFailed:
    """Returns the code and name of what a driver raised; for statements of callers, whose failures are theirs."""
    text = str(error)
    return StatementFailed(_code(error, text), _name(error, text))


def _kind(error: BaseException, failed: StatementFailed) -> type[LoomError]:
    if failed.name is not None:
        return TRANSLATIONS.get(failed.name, InternalError)
    if isinstance(error, TimeoutError):
        return DeadlineExceeded
    # The driver's own complaint about a value never reached the engine; anything else nameless is the network.
    if isinstance(error, _VALUE_ERRORS):
        return InternalError
    return BackendUnavailable


def _code(error: BaseException, text: str) -> int | None:
    code = getattr(error, "code", None)
    if isinstance(code, int):
        return code
    match = _CODE.search(text)
    return int(match.group(1)) if match else None


def _name(error: BaseException, text: str) -> str | None:
    name = getattr(error, "name", None)
    if isinstance(name, str):
        return name
    if not _CODE.search(text):
        return None
    names = _NAME.findall(text)
    return names[-1] if names else None
