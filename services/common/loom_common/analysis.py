"""Which columns an analysis may read: one definition, from which grants, filters, guard and catalog are made.

Each package that owns tables exports its part as `TABLES` of a module `analysis`; the parts of all are written into the
contract's distribution, because the service that runs analyses carries none of the other services' packages.

A table is admitted with its metadata alone: names, kinds, times, counts and costs. Texts, prompts, queries and
arguments are not, and a test holds that line by the names of columns.
"""

import functools
import importlib
import importlib.util
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Final, Literal

from loom_common.clickhouse.protocol import Table
from loom_protos import analysis_tables

RowsKind = Literal["one_per_key", "one_per_event"]

SCOPE_COLUMNS: Final = ("org", "namespace")
"""Columns that every admitted table has, by which rows are told apart."""

_SCOPE_COMMENTS: Final = {
    "org": "Organisation; always the caller's own.",
    "namespace": "Namespace; one of those that the call names.",
}


@dataclass(frozen=True, slots=True)
class AnalysisColumn:
    """One column that may be read.

    Attributes:
        name: Name.
        type: Type, as the engine declares it.
        comment: What it holds, for whoever writes a statement.
    """

    name: str
    type: str
    comment: str


@dataclass(frozen=True, slots=True)
class AnalysisTable:
    """One table that may be read.

    Attributes:
        name: Name.
        comment: What one row is.
        rows: Whether a row is one live thing or one event.
        columns: What may be read of it; `org` and `namespace` among them.
        live: Condition over a row that is neither deleted nor erased, the owner's own; `1` where rows are removed.
        erased: Why a statement after an erasure finds nothing of what it removed.
    """

    name: str
    comment: str
    rows: RowsKind
    columns: tuple[AnalysisColumn, ...]
    live: str
    erased: str

    @classmethod
    def of(
        cls, table: Table, comment: str, rows: RowsKind, *, live: str, erased: str, columns: Mapping[str, str]
    ) -> "AnalysisTable":
        """Makes a table from some columns of a stored one: name to comment; org and namespace are put before them.

        Raises:
            KeyError: The stored table has no such column.
        """
        types = {column.name: column.type for column in table.columns}
        comments = {**_SCOPE_COMMENTS, **columns}
        held = tuple(AnalysisColumn(name, types[name], text) for name, text in comments.items())
        return cls(table.name, comment, rows, held, live, erased)

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns, in their order."""
        return tuple(column.name for column in self.columns)


@functools.cache
def allowlist() -> Mapping[str, AnalysisTable]:
    """Returns every table that may be read, by name, as the contract's distribution ships it."""
    return MappingProxyType({table.name: table for table in from_json(analysis_tables())})


def collect(packages: Iterable[str]) -> list[AnalysisTable]:
    """Returns what packages export, by name of the table.

    Raises:
        ValueError: Two export one table, or one has no scope.
    """
    found: dict[str, AnalysisTable] = {}
    for package in packages:
        if importlib.util.find_spec(f"{package}.analysis") is None:
            continue
        for table in getattr(importlib.import_module(f"{package}.analysis"), "TABLES", ()):
            if table.name in found or not set(SCOPE_COLUMNS) <= set(table.column_names):
                raise ValueError(f"{table.name} is exported twice, or without org and namespace")
            found[table.name] = table
    return [found[name] for name in sorted(found)]


def to_json(tables: Sequence[AnalysisTable]) -> str:
    """Returns tables as the text of their file."""
    return json.dumps([asdict(table) for table in tables], indent=2, ensure_ascii=False) + "\n"


def from_json(tables: Sequence[Mapping[str, object]]) -> list[AnalysisTable]:
    """Returns tables that were read from their file."""
    found = []
    for table in tables:
        columns = table["columns"]
        assert isinstance(columns, list), "written by `to_json`"
        held = {**table, "columns": tuple(AnalysisColumn(**column) for column in columns)}
        found.append(AnalysisTable(**held))  # type: ignore[arg-type]  # written by `to_json` from the same class
    return found
