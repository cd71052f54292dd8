"""Reads what the engine answers into rows that JSON can show."""

import csv
import io
import json
from collections.abc import Mapping
from typing import Final

from loom_insights.domain.analysis import AnalysisAnswer, AnswerForm, ResultColumn
from loom_insights.domain.arrow import count_rows

# How the engine is asked for each form.
FORMATS: Final[dict[AnswerForm, str]] = {
    "rows": "JSONCompactEachRowWithNamesAndTypes",
    "csv": "CSVWithNamesAndTypes",
    "arrow": "ArrowStream",
}

FORMAT_SETTINGS: Final[Mapping[str, str | int]] = {
    "date_time_output_format": "iso",
    "output_format_json_quote_64bit_integers": 0,
    "output_format_json_quote_denormals": 1,
    "output_format_json_quote_decimals": 1,
    "output_format_json_named_tuples_as_objects": 1,
    "output_format_json_validate_utf8": 1,
    "output_format_arrow_string_as_string": 1,
    "output_format_arrow_low_cardinality_as_dictionary": 0,
    "output_format_csv_crlf_end_of_line": 0,
    "session_timezone": "UTC",
}
"""Settings that make an answer the same on every engine: times in UTC as RFC 3339, numbers as numbers."""

PLAIN_COLUMNS: Final[Mapping[str, str | int]] = {"optimize_functions_to_subcolumns": 0}
"""Keeps `x IS NULL`, `count(x)` and `length(x)` on the column that is granted, not on a part of it that is not."""

# Whole numbers above it are no JSON number that every reader keeps.
_EXACT: Final = 2**53


def read_answer(form: AnswerForm, data: bytes, elapsed_ms: float) -> AnalysisAnswer:
    """Returns the answer that the engine's bytes hold."""
    if form == "arrow":
        return AnalysisAnswer(arrow=data, row_count=count_rows(data), elapsed_ms=elapsed_ms)
    if form == "csv":
        return _from_csv(data.decode("utf-8", "replace"), elapsed_ms)
    lines = data.decode("utf-8", "replace").split("\n")
    names, types = (json.loads(line) for line in lines[:2])
    columns = tuple(ResultColumn(str(name), str(type_)) for name, type_ in zip(names, types, strict=True))
    rows = [[_shown(value) for value in json.loads(line)] for line in lines[2:] if line]
    return AnalysisAnswer(columns=columns, rows=rows, row_count=len(rows), elapsed_ms=elapsed_ms)


def _from_csv(text: str, elapsed_ms: float) -> AnalysisAnswer:
    # The reader alone knows where a line ends: a name may hold line ends.
    source = io.StringIO(text, newline="")
    reader = csv.reader(source)
    names = next(reader)
    after_names = source.tell()
    types = next(reader)
    after_types = source.tell()
    columns = tuple(ResultColumn(name, type_) for name, type_ in zip(names, types, strict=True))
    return AnalysisAnswer(
        columns=columns,
        csv=text[:after_names] + text[after_types:],
        row_count=sum(1 for _ in reader),
        elapsed_ms=elapsed_ms,
    )


def _shown(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | list | dict):
        return value
    if isinstance(value, int):
        return value if abs(value) <= _EXACT else str(value)
    if isinstance(value, list):
        return [_shown(item) for item in value]
    return {name: _shown(item) for name, item in value.items()}
