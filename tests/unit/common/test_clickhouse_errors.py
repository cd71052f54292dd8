import logging

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError, DataError, OperationalError

from loom_common.clickhouse import StatementFailed
from loom_common.clickhouse.errors import TRANSLATIONS, translated
from loom_common.errors import BackendUnavailable, DeadlineExceeded, InternalError, LoomError, Overloaded


def _bare(code: int, name: str) -> RuntimeError:
    return RuntimeError(f"Streaming insert failed: Code: {code}. DB::Exception: (SECRET_TEXT) of a row. ({name})")


@pytest.mark.parametrize(("name", "kind"), TRANSLATIONS.items())
def test_a_symbolic_name_decides_whichever_way_the_error_came(name: str, kind: type[LoomError]) -> None:
    for error in (DatabaseError("text", code=1, name=name), _bare(1, name)):
        assert type(translated(error, "mark")) is kind


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (_bare(47, "UNKNOWN_IDENTIFIER"), InternalError),
        (_bare(241, "MEMORY_LIMIT_EXCEEDED"), Overloaded),
        (OperationalError("Network Error: no name here"), BackendUnavailable),
        (ConnectionResetError(), BackendUnavailable),
        (TimeoutError(), DeadlineExceeded),
        (DataError("Unable to create native array"), InternalError),
        (ValueError("could not convert"), InternalError),
    ],
)
def test_an_error_is_translated_by_its_kind(error: Exception, kind: type[LoomError]) -> None:
    assert type(translated(error, "mark")) is kind


def test_the_engines_text_is_logged_and_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        error = translated(_bare(47, "UNKNOWN_IDENTIFIER"), "memory.get 01J x-1")
    assert "SECRET" not in f"{error} {error.__cause__}"
    record = caplog.records[-1]
    assert "SECRET_TEXT" in record.__dict__["text"]
    assert record.__dict__["log_comment"] == "memory.get 01J x-1"


def test_the_cause_has_code_and_name() -> None:
    cause = translated(_bare(396, "TOO_MANY_ROWS_OR_BYTES"), "mark").__cause__
    assert isinstance(cause, StatementFailed)
    assert (cause.code, cause.name) == (396, "TOO_MANY_ROWS_OR_BYTES")


@pytest.mark.parametrize(
    ("error", "known"),
    [
        (_bare(53, "TYPE_MISMATCH"), True),
        (ValueError(), True),
        (_bare(159, "TIMEOUT_EXCEEDED"), False),
        (ConnectionResetError(), False),
    ],
)
def test_only_a_refusal_says_that_nothing_was_written(error: Exception, known: bool) -> None:
    cause = translated(error, "mark").__cause__
    assert isinstance(cause, StatementFailed)
    assert cause.known_unwritten is known


def test_a_defect_of_our_own_is_logged_with_its_trace_and_a_refusal_is_not(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> None:
        raise AttributeError("no such thing")

    with caplog.at_level(logging.WARNING):
        try:
            broken()
        except AttributeError as error:
            translated(error, "mark")
        translated(_bare(47, "UNKNOWN_IDENTIFIER"), "mark")
        translated(DataError("a value"), "mark")
    traced = [record.exc_info[2] is not None for record in caplog.records if record.exc_info]
    assert traced == [True]


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (107, "FILE_DOESNT_EXIST"),
        (76, "CANNOT_OPEN_FILE"),
        (256, "CANNOT_STATVFS"),
        (75, "CANNOT_WRITE_TO_FILE_DESCRIPTOR"),
        (243, "NOT_ENOUGH_SPACE"),
        (341, "UNFINISHED"),
        (481, "PATH_ACCESS_DENIED"),
        (1001, "STD_EXCEPTION"),
    ],
)
def test_files_that_are_gone_or_full_make_the_backend_unavailable(code: int, name: str) -> None:
    error = translated(_bare(code, name), "mark")
    assert type(error) is BackendUnavailable
    assert isinstance(error.__cause__, StatementFailed)
    assert not error.__cause__.known_unwritten
