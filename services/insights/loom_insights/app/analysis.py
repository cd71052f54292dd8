"""Running a caller's SQL: who may read what, how many at once, and the answer's digest."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from loom_common.auth.claims import Claims
from loom_common.call import Scope
from loom_common.errors import Overloaded
from loom_common.sql_digest import sql_digest
from loom_insights.app.availability import Availability
from loom_insights.app.namespaces import ReadableNamespaces
from loom_insights.domain.analysis import AnalysisAnswer, AnalysisScope, AnswerForm, one_statement
from loom_insights.domain.boundary import AnalysisBoundary, Statement

_BUSY_WAIT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Analysed:
    """What came of a statement.

    Attributes:
        answer: Its answer.
        namespaces: Namespaces that were read.
        digest: Digest of the statement, by which it is cited.
        length_bytes: Length of the statement, in bytes.
    """

    answer: AnalysisAnswer
    namespaces: tuple[str, ...]
    digest: str
    length_bytes: int


class Analyses:
    """Runs statements of callers behind a boundary that was seen to hold."""

    def __init__(
        self,
        boundary: AnalysisBoundary,
        availability: Availability,
        namespaces: ReadableNamespaces,
        *,
        per_org: int,
        together: int,
    ) -> None:
        self._boundary = boundary
        self._availability = availability
        self._namespaces = namespaces
        self._per_org = per_org
        self._together = together
        self._running: Counter[str] = Counter()

    async def query(self, claims: Claims, scope: Scope, others: Sequence[str], sql: str, form: AnswerForm) -> Analysed:
        """Returns the answer of one statement over a namespace and others that the caller names.

        Raises:
            AuthInsufficient: The caller may not read one of the others.
            AnalysisUnavailable: The boundary is not proven to hold.
            Overloaded: Too many statements run already.
            QueryRejected: The statement is not allowed.
            QueryLimit: It hit a limit.
        """
        readable = await self._namespaces.all_of(claims, scope, others)
        statement = Statement(one_statement(sql), AnalysisScope(scope.org, readable), form)
        async with self._place(scope.org):
            await self._availability.require()
            answer = await self._boundary.run(statement)
        return Analysed(answer, readable, sql_digest(sql), len(sql.encode()))

    @asynccontextmanager
    async def _place(self, org: str) -> AsyncIterator[None]:
        if self._running[org] >= self._per_org:
            raise Overloaded(
                f"{self._per_org} statements of this organisation run already; send it again when one has ended.",
                retry_after_s=_BUSY_WAIT_S,
            )
        if self._running.total() >= self._together:
            raise Overloaded("Too many statements run already; try again shortly.", retry_after_s=_BUSY_WAIT_S)
        self._running[org] += 1
        try:
            yield
        finally:
            self._running[org] -= 1
            if not self._running[org]:
                del self._running[org]
