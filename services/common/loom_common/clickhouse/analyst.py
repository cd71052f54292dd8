"""What runs callers' statements on an embedded engine: in this process, or in the one that holds the engine."""

from collections.abc import Mapping, Sequence
from typing import Protocol


class Analyst(Protocol):
    """Runs statements as the role that sees one signed scope. Every method raises `AnalystFailure` for a refusal."""

    @property
    def database(self) -> str:
        """Database that is read."""
        ...

    def configure(self, settings: Mapping[str, str | int | float]) -> None:
        """Sets what every statement runs under; before the first one."""
        ...

    async def formatted(self, statement: str) -> str:
        """Returns a statement as the engine writes it, on one line and without comments; nothing is executed."""
        ...

    async def syntax_tree(self, formatted: str) -> str:
        """Returns the parse of a statement that the engine formatted itself, one node a line; nothing is executed."""
        ...

    async def run(
        self, statement: str, output_format: str, org: str, namespaces: Sequence[str], *, timeout_s: float
    ) -> bytes:
        """Returns the rows of a statement that was looked at before, in one of the engine's formats."""
        ...

    async def run_unsigned(self, statement: str, log_comment: str) -> bytes:
        """Returns the rows of a statement under a comment that is not signed; for checks, which expect none."""
        ...

    async def close(self) -> None:
        """Waits for running statements and gives up what it holds. Safe to call twice."""
        ...
