"""Columns of numbers that grow at their end."""

from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

_FIRST: Final = 64


class GrowingColumns:
    """Equally long columns, of which only the end is added to.

    A reader that holds the arrays and their length reads the same rows whatever is added meanwhile.
    """

    def __init__(self, **kinds: DTypeLike) -> None:
        self._columns: dict[str, NDArray[Any]] = {name: np.zeros(_FIRST, kind) for name, kind in kinds.items()}
        self._capacity = _FIRST
        self.length = 0

    def append(self, **values: int | bool) -> int:
        """Adds a row and returns its place."""
        if self.length == self._capacity:
            self._capacity *= 2
            for name, column in self._columns.items():
                grown = np.zeros(self._capacity, column.dtype)
                grown[: self.length] = column
                self._columns[name] = grown
        place = self.length
        for name, value in values.items():
            self._columns[name][place] = value
        self.length = place + 1
        return place

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Returns a column up to its end."""
        return self._columns[name][: self.length]

    def set(self, name: str, place: int, value: int | bool) -> None:
        """Changes one value."""
        self._columns[name][place] = value

    def get(self, name: str, place: int) -> int:
        """Returns one value."""
        return int(self._columns[name][place])

    @property
    def size_bytes(self) -> int:
        """Memory that the columns take, their spare ends included."""
        return sum(column.nbytes for column in self._columns.values())


class Codes:
    """Small numbers for values that repeat."""

    def __init__(self) -> None:
        self._codes: dict[Any, int] = {}  # Any: each column has its own kind of value
        self.size_bytes = 0

    def of(self, value: Any) -> int:
        """Returns the number of a value, a new one where it has none."""
        code = self._codes.get(value)
        if code is None:
            code = self._codes[value] = len(self._codes)
            # An entry of the dictionary, the number and the value itself. Source: measured with `tracemalloc`.
            self.size_bytes += 180 + (len(value) if isinstance(value, str) else 0)
        return code

    def find(self, value: Any) -> int:
        """Returns the number of a value, -1 where it has none."""
        return self._codes.get(value, -1)

    def values(self) -> list[Any]:
        """Returns the values in order of their numbers."""
        return list(self._codes)
