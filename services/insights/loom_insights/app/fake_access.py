"""A server's access entities in memory, for tests of what writes them."""

import re
from collections.abc import Iterable

from loom_common.analysis import AnalysisTable
from loom_common.errors import BackendUnavailable
from loom_insights.domain.server_entities import ServerSecrets


class FakeAccess:
    """See `Access`. It keeps what was written and understands of it what decides: the user and the version.

    Attributes:
        written: Statements, in their order.
        foreign: Policies of others that would widen what the analyst reads.
        others: Databases that carry the analyst's policy.
        absent_columns: Columns that are not there yet, as `table.column`.
        fails_after: Number of statements after which every one fails; None for never.
    """

    database = "loom"
    cluster = ""

    def __init__(self, *, prefix: str = "SQL_", stamp: str = "", analyst: bool = False) -> None:
        self._prefix = prefix
        self._stamp = stamp
        self._analyst = analyst
        self.written: list[str] = []
        self.foreign: list[str] = []
        self.others: list[str] = []
        self.absent_columns: set[str] = set()
        self.fails_after: int | None = None

    async def prefix(self) -> str:
        """See `Access.prefix`."""
        return self._prefix

    async def present(self, tables: Iterable[AnalysisTable]) -> tuple[tuple[AnalysisTable, ...], tuple[str, ...]]:
        """See `Access.present`."""
        found = []
        for table in tables:
            columns = tuple(one for one in table.columns if f"{table.name}.{one.name}" not in self.absent_columns)
            found.append(AnalysisTable(table.name, table.comment, table.rows, columns, table.live, table.erased))
        return tuple(found), tuple(sorted(self.absent_columns))

    async def stamp(self) -> str:
        """See `Access.stamp`."""
        return self._stamp

    async def has_analyst(self) -> bool:
        """See `Access.has_analyst`."""
        return self._analyst

    async def widening(self, tables: Iterable[str]) -> list[str]:
        """See `Access.widening`."""
        return self.foreign

    async def elsewhere(self) -> list[str]:
        """See `Access.elsewhere`."""
        return self.others

    async def write(self, statement: str) -> None:
        """See `Access.write`."""
        if self.fails_after is not None and len(self.written) >= self.fails_after:
            raise BackendUnavailable("The database cannot be reached.")
        self.written.append(statement)
        self._analyst = self._analyst or statement.startswith("CREATE USER")
        if (version := re.search(r"loom_version = '([^']+)'", statement)) is not None:
            self._stamp = version[1]


class FakeSecretStore:
    """See `SecretStore`."""

    def __init__(self, stored: ServerSecrets | None = None) -> None:
        self.stored = stored
        self.draws = 0

    async def read(self) -> ServerSecrets | None:
        """See `SecretStore.read`."""
        return self.stored

    async def draw(self) -> ServerSecrets:
        """See `SecretStore.draw`."""
        self.draws += 1
        self.stored = ServerSecrets(bytes([self.draws]) * 32, f"Password-{self.draws}")
        return self.stored
