"""What every boundary around analyses does, whichever engine is behind it."""

from dataclasses import dataclass
from typing import Literal, Protocol

from loom_insights.domain.analysis import AnalysisAnswer, AnalysisScope, AnswerForm

BoundaryKind = Literal["embedded", "server"]


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a caller.

    Attributes:
        sql: The statement, without the semicolon that may end it.
        scope: What it may read.
        form: Form of its answer.
    """

    sql: str
    scope: AnalysisScope
    form: AnswerForm = "rows"


class BoundaryBroken(Exception):
    """A check of the boundary had a definite answer, and it was not the one that a boundary that holds gives."""


class BoundarySilent(Exception):
    """A check of the boundary got no answer; whether it holds is not known."""


class AnalysisBoundary(Protocol):
    """Runs callers' statements where the database itself keeps them inside their scope."""

    @property
    def kind(self) -> BoundaryKind:
        """Which boundary it is."""
        ...

    async def run(self, statement: Statement) -> AnalysisAnswer:
        """Returns the whole answer of a statement.

        Raises:
            QueryRejected: The statement is not allowed.
            QueryLimit: It hit a limit.
            Overloaded: The database is at its limit.
            BackendUnavailable: The database cannot be reached.
        """
        ...

    async def probe(self) -> None:
        """Returns if the boundary was seen to hold.

        Raises:
            BoundaryBroken: It was seen not to; the text is for operators.
            BoundarySilent: Nobody knows; the text is for operators.
        """
        ...

    async def close(self) -> None:
        """Waits for running statements and gives up what it holds."""
        ...


class NoBoundary:
    """Stands where this process has no boundary; it runs nothing.

    Args:
        kind: Which boundary the process would need.
        why: One sentence for operators.
    """

    def __init__(self, kind: BoundaryKind, why: str) -> None:
        self._kind = kind
        self._why = why

    @property
    def kind(self) -> BoundaryKind:
        """See `AnalysisBoundary.kind`."""
        return self._kind

    async def run(self, statement: Statement) -> AnalysisAnswer:
        """Never runs anything: the probe has never passed."""
        raise BoundaryBroken(self._why)

    async def probe(self) -> None:
        """See `AnalysisBoundary.probe`."""
        raise BoundaryBroken(self._why)

    async def close(self) -> None:
        """Holds nothing."""
