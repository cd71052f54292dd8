"""What a statement over one's own data is: its scope, its limits, and its answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from loom_common.errors import QueryRejected

AnswerForm = Literal["rows", "csv", "arrow"]

# Names that no organisation or namespace can have: what the boundary's own checks read must always be empty.
RESERVED: Final = ""


@dataclass(frozen=True, slots=True)
class AnalysisScope:
    """What a statement may read.

    Attributes:
        org: Organisation.
        namespaces: Namespaces of it, the addressed one first.
    """

    org: str
    namespaces: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.org or not self.namespaces or not all(self.namespaces):
            raise ValueError("the reserved scope is no caller's")


@dataclass(frozen=True, slots=True)
class AnalysisLimits:
    """What one statement may take.

    Units: seconds, rows and bytes, as the names say.
    """

    time_s: float = 10.0
    read_rows: int = 50_000_000
    memory_bytes: int = 512 << 20
    result_rows: int = 10_000
    result_bytes: int = 4 << 20
    threads: int = 2


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """One column of an answer."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class AnalysisAnswer:
    """A whole answer in one form.

    Attributes:
        columns: Columns; empty for Arrow.
        rows: Rows, where that is the form.
        csv: Rows as text, where that is the form.
        arrow: Rows as an Arrow stream, where that is the form.
        row_count: Number of rows.
        elapsed_ms: Time that the database took, in milliseconds.
    """

    columns: tuple[ResultColumn, ...] = ()
    rows: Sequence[Sequence[object]] = ()
    csv: str = ""
    arrow: bytes = b""
    row_count: int = 0
    elapsed_ms: float = 0.0


def one_statement(sql: str) -> str:
    """Returns a statement without the one semicolon that may end it.

    Raises:
        QueryRejected: Nothing is left, or it holds a NUL character.
    """
    text = sql.strip()
    if text.endswith(";"):
        text = text[:-1].rstrip()
    if not text:
        raise QueryRejected("The statement is empty; send one SELECT.")
    if "\0" in text:
        raise QueryRejected("The statement holds a NUL character.")
    return text


def wrapped(statement: str) -> str:
    """Returns a statement as it is run: as a subquery, on lines of its own, where only a SELECT parses."""
    return "\n".join(("SELECT * FROM (", statement, ")"))
