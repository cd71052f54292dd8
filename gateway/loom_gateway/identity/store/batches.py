"""Long lists of names in statements: over HTTP a list travels in the address, which a server bounds."""

from collections.abc import Iterator, Sequence
from typing import Final

# Source: names are at most 256 characters, and ClickHouse takes addresses of up to 1 MiB.
_MOST: Final = 1_000


def batches(names: Sequence[str]) -> Iterator[list[str]]:
    """Yields the names in their order, as many at once as one statement takes."""
    for start in range(0, len(names), _MOST):
        yield list(names[start : start + _MOST])
