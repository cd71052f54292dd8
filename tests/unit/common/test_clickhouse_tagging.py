import pytest

from loom_common.call import Call, bind
from loom_common.clickhouse.tagging import check_bound, next_log_comment, tagged, with_statement_settings


def test_every_mark_is_its_own_and_names_the_call() -> None:
    with tagged("memory.search 01J"):
        first, second = next_log_comment(), next_log_comment()
    assert first != second
    assert first.startswith("memory.search 01J ")
    assert next_log_comment().startswith("system - ")


def test_a_mark_names_the_running_call_unless_a_worker_names_itself() -> None:
    with bind(Call(op="memory.search", request_id="01J")):
        assert next_log_comment().startswith("memory.search 01J ")
        with tagged("memory.sweep"):
            assert next_log_comment().startswith("memory.sweep ")


def test_a_statement_gets_its_time_limit_and_its_mark() -> None:
    settings = with_statement_settings({"max_threads": 1}, 2.5)
    assert settings["max_execution_time"] == 2.5
    assert settings["max_threads"] == 1
    assert settings["log_comment"]


def test_a_callers_own_mark_is_kept() -> None:
    assert with_statement_settings({"log_comment": "signed"}, 1)["log_comment"] == "signed"


@pytest.mark.parametrize(
    ("sql", "parameters"),
    [
        ("SELECT %(x)s", {"x": 1}),  # the driver would format it into the text
        ("SELECT {x}", {"x": 1}),
        ("SELECT {x:UInt8}", None),
        ("SELECT {x:UInt8}", {"x": 1, "y": 2}),
        ("SELECT {x:UInt8}", {"x y": 1}),
    ],
)
def test_a_value_without_a_placeholder_is_refused_and_so_is_the_reverse(
    sql: str, parameters: dict[str, object] | None
) -> None:
    with pytest.raises(ValueError):
        check_bound(sql, parameters)


def test_bound_values_pass() -> None:
    assert check_bound("SELECT {x:UInt8} + {x:UInt8}", {"x": 1}) == {"x": 1}
    assert check_bound("SELECT '{'", None) == {}
