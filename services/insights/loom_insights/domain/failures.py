"""Says what became of a statement in words of ours: the limit it hit, or what of the caller's own text is not allowed.

The engine's words never leave: they quote rows, filters and statements around the caller's.
"""

import re
from collections.abc import Mapping
from typing import Final

from loom_common.errors import BackendUnavailable, Cancelled, LoomError, Overloaded, QueryLimit, QueryRejected
from loom_insights.domain.analysis import AnalysisLimits

_NARROW: Final = "Narrow it: fewer namespaces, a shorter span of time, or fewer columns."
_SUM_UP: Final = "Sum it up with GROUP BY, or take the rows that matter with ORDER BY and LIMIT."

# Name of the engine's error to the limit's name and what to do.
_LIMITS: Final[Mapping[str, tuple[str, str]]] = {
    "TIMEOUT_EXCEEDED": ("time_s", _NARROW),
    "TOO_SLOW": ("time_s", _NARROW),
    "TOO_MANY_ROWS": ("read_rows", _NARROW),
    "TOO_MANY_BYTES": ("read_rows", _NARROW),
    "TOO_MANY_ROWS_OR_BYTES": ("result_rows", _SUM_UP),
    "MEMORY_LIMIT_EXCEEDED": ("memory_bytes", _SUM_UP),
    "TOO_BIG_AST": ("statement size", "Make the statement shorter."),
    "TOO_DEEP_AST": ("statement depth", "Nest it less."),
    "TOO_DEEP_SUBQUERIES": ("statement depth", "Nest it less."),
    "TOO_DEEP_RECURSION": ("statement depth", "Nest it less."),
    "TOO_DEEP_PIPELINE": ("statement depth", "Nest it less."),
    "QUERY_IS_TOO_LARGE": ("statement size", "Make the statement shorter."),
    "TOO_MANY_COLUMNS": ("columns", "Name fewer columns."),
    "SET_SIZE_LIMIT_EXCEEDED": ("memory_bytes", _SUM_UP),
    "TOO_LARGE_STRING_SIZE": ("memory_bytes", _SUM_UP),
    "TOO_LARGE_ARRAY_SIZE": ("memory_bytes", _SUM_UP),
}

_WORDS: Final[Mapping[str, str]] = {
    "SYNTAX_ERROR": "It is not one SELECT in ClickHouse's SQL",
    "UNKNOWN_IDENTIFIER": "It names a column that the tables it reads do not have",
    "NO_SUCH_COLUMN_IN_TABLE": "It names a column that the tables it reads do not have",
    "NOT_FOUND_COLUMN_IN_BLOCK": "It names a column that the tables it reads do not have",
    "AMBIGUOUS_IDENTIFIER": "It names a column that more than one of its tables has; put the table before it",
    "UNKNOWN_TABLE": "It reads a table that is not in `insights.catalog`",
    "UNKNOWN_DATABASE": "It reads a table that is not in `insights.catalog`",
    "ACCESS_DENIED": "It reads a table or column that is not in `insights.catalog`; `*` stands for some that are not",
    "UNKNOWN_QUERY_PARAMETER": "Parameters are refused: write the value into the statement",
    "UNKNOWN_FUNCTION": "It calls a function that does not exist",
    "NOT_AN_AGGREGATE": "It shows a column that is neither grouped by nor aggregated",
    "ILLEGAL_AGGREGATION": "It aggregates where it cannot, such as in WHERE or inside another aggregate",
    "ILLEGAL_TYPE_OF_ARGUMENT": "A function is given a value of a type that it does not take",
    "NUMBER_OF_ARGUMENTS_DOESNT_MATCH": "A function is given too few or too many values",
    "TYPE_MISMATCH": "It compares or joins values of different types",
    "NO_COMMON_TYPE": "It puts values of types together that have no common one",
    "CANNOT_PARSE_TEXT": "A text cannot be read as the type that it is turned into",
    "CANNOT_PARSE_NUMBER": "A text cannot be read as a number",
    "CANNOT_PARSE_DATETIME": "A text cannot be read as a time",
    "CANNOT_PARSE_DATE": "A text cannot be read as a date",
    "ILLEGAL_DIVISION": "It divides by zero",
    "ARGUMENT_OUT_OF_BOUND": "A function is given a value out of its range",
    "READONLY": "It is no SELECT, or changes a setting",
}

_OVERLOADED: Final = frozenset(
    {"TOO_MANY_SIMULTANEOUS_QUERIES", "SERVER_OVERLOADED", "CANNOT_ALLOCATE_MEMORY", "CANNOT_SCHEDULE_TASK"}
)
_CANCELLED: Final = frozenset({"QUERY_WAS_CANCELLED", "QUERY_WAS_CANCELLED_BY_CLIENT"})

# Names of ours that stand in what the engine says of a filter; a message with one is never looked into.
_OURS: Final = re.compile(r"log_comment|loom_|HMAC|currentRoles", re.IGNORECASE)
_QUOTED: Final = re.compile(r"[`'\"]([A-Za-z_][A-Za-z0-9_.]{0,127})[`'\"]")
# Of these the engine says which word it means; of a failure inside the rows it would say which value.
_NAMES_A_WORD: Final = frozenset(
    {
        "UNKNOWN_IDENTIFIER",
        "NO_SUCH_COLUMN_IN_TABLE",
        "AMBIGUOUS_IDENTIFIER",
        "UNKNOWN_TABLE",
        "UNKNOWN_FUNCTION",
        "NOT_AN_AGGREGATE",
    }
)
_OVERLOADED_WAIT_S: Final = 5.0


def failure(name: str | None, text: str, statement: str, limits: AnalysisLimits) -> LoomError:
    """Returns the error that a caller sees.

    Args:
        name: The engine's name of the error; None where it gave none.
        text: The engine's words.
        statement: The caller's statement, the only text that is quoted.
        limits: What the statement ran under.
    """
    if name is None:
        return BackendUnavailable("The database cannot be reached, or cannot read or write its files.")
    if name in _CANCELLED:
        return Cancelled("The statement was cancelled.")
    # The engine's own memory, not the statement's: it passes.
    whole_engine = name == "MEMORY_LIMIT_EXCEEDED" and "(total)" in text
    if name in _OVERLOADED or whole_engine:
        return Overloaded("The database is at its limit; try again shortly.", retry_after_s=_OVERLOADED_WAIT_S)
    if name in _LIMITS:
        limit, advice = _LIMITS[name]
        return limit_reached(limit, advice, limits)
    words = _WORDS.get(name, "The database does not take it")
    quoted = _word(text, statement) if name in _NAMES_A_WORD else ""
    found = f": `{quoted}`" if quoted else ""
    return QueryRejected(f"{words}{found}.", detail={"cause": name, **({"name": quoted} if quoted else {})})


def limit_reached(limit: str, advice: str, limits: AnalysisLimits) -> QueryLimit:
    """Returns the error of a statement that hit a limit."""
    value = getattr(limits, limit, None)
    shown = f"{limit} = {value:g}" if isinstance(value, int | float) else limit
    if isinstance(value, int):
        shown = f"{limit} = {value}"
    if limit == "result_rows":
        shown = f"result_rows = {limits.result_rows} or result_bytes = {limits.result_bytes}"
    return QueryLimit(f"The statement hit the limit {shown}. {advice}", detail={"limit": limit})


def _word(text: str, statement: str) -> str:
    """Returns the first word that the engine quotes and that stands in the caller's own statement."""
    if _OURS.search(text):
        return ""
    return next((word for word in _QUOTED.findall(text) if re.search(rf"\b{re.escape(word)}\b", statement)), "")
