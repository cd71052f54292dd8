"""What a repository sees of ClickHouse: statements with bound values in, rows out.

Above it sit the repositories of every service; below it `EmbeddedClickHouse` (the engine inside this process) and
`HttpClickHouse` (a server). Nothing above knows which one it holds.
"""

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Parameters = Mapping[str, object]
"""Values of the `{name:Type}` placeholders: scalars, aware datetimes, and lists or tuples of them.

A map is not one of them (pass two arrays), nor is a numpy array (pass `.tolist()`).
"""

Settings = Mapping[str, str | int | float]
"""Settings of one statement, by the engine's names."""

Row = tuple[Any, ...]
"""One row; `Any` because its types are the columns' and no static type knows them."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A whole result, in the statement's order."""

    columns: tuple[str, ...]
    rows: list[Row]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def first(self) -> Row | None:
        """Returns the first row, or None when there is none."""
        return self.rows[0] if self.rows else None

    def scalar(self) -> Any:  # the column's own type, see Row
        """Returns the first column of the first row.

        Raises:
            LookupError: The result has no rows.
        """
        return self.rows[0][0]

    def dicts(self) -> list[dict[str, Any]]:
        """Returns each row as a mapping from column name to value."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


@dataclass(frozen=True, slots=True)
class Column:
    """One column as the engine declares it, such as `Column("created_at", "DateTime64(3, 'UTC')")`."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table that rows are inserted into, with the columns that an insert fills, in the order of its values.

    The types are sent with each insert, so that none asks the engine for them first. `quorum` marks a table whose
    rows another replica must see at once (claims, leases): on a cluster its inserts wait for a quorum.
    """

    name: str
    columns: tuple[Column, ...]
    quorum: bool = False
    column_names: tuple[str, ...] = field(init=False, repr=False, compare=False)
    column_types: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "column_names", tuple(column.name for column in self.columns))
        object.__setattr__(self, "column_types", tuple(column.type for column in self.columns))

    @classmethod
    def of(cls, name: str, /, *, quorum: bool = False, **columns: str) -> "Table":
        """Makes a table from keyword arguments, column name to type."""
        return cls(name, tuple(Column(column, type_) for column, type_ in columns.items()), quorum)


class ClickHouse(Protocol):
    """One database, reached with server-side bound parameters only.

    Every method raises `LoomError` subclasses: `DeadlineExceeded` when `timeout_s` or a wait passed, `Overloaded`
    when the engine is out of memory or places, `BackendUnavailable` when it cannot be reached or is read-only,
    `InternalError` for a statement that the engine refused. `__cause__` is then a `StatementFailed` with the
    engine's code and symbolic name.
    """

    @property
    def database(self) -> str:
        """Name of the database that unqualified tables belong to."""
        ...

    @property
    def cluster(self) -> str:
        """Name of the cluster that tables are replicated on; empty on a single engine."""
        ...

    @property
    def exclusive(self) -> bool:
        """Whether no other process can write the same database, so that locks of this process order all writers."""
        ...

    async def query(
        self,
        sql: str,
        parameters: Parameters | None = None,
        *,
        settings: Settings | None = None,
        timeout_s: float | None = None,
    ) -> Rows:
        """Runs a SELECT and returns its whole result. Times come back as aware datetimes in UTC."""
        ...

    async def command(
        self,
        sql: str,
        parameters: Parameters | None = None,
        *,
        settings: Settings | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Runs a statement that has no result: DDL, ALTER, INSERT ... SELECT."""
        ...

    async def insert(self, table: Table, rows: Sequence[Sequence[object]]) -> None:
        """Inserts rows and returns once they are stored and visible to every later read.

        Rows of concurrent callers go into one insert; a caller whose rows are bad fails alone. The rows of one call
        are stored together or not at all unless they span more than one partition.

        Raises:
            Overloaded: Too many rows wait for this table already.
        """
        ...

    def stream(
        self,
        sql: str,
        parameters: Parameters | None = None,
        *,
        settings: Settings | None = None,
        timeout_s: float | None = None,
    ) -> AsyncGenerator[Sequence[Row], None]:
        """Runs a SELECT and yields its rows block by block; close the iterator (`aclosing`) if it is left early."""
        ...

    async def ping(self) -> None:
        """Returns if the engine answers and its data directory is the one it was opened on.

        Raises:
            BackendUnavailable: It does not answer, or its directory was removed or replaced.
        """
        ...

    async def close(self) -> None:
        """Writes the rows that still wait, then lets running statements end and closes. Safe to call twice."""
        ...
