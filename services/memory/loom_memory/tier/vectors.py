"""The vectors of a namespace, in blocks that never move."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loom_memory.tier.columns import GrowingColumns

# Source: chosen. Full blocks are added one by one, so that growth copies nothing of a large namespace; a small one
# takes no whole block.
_BLOCK_ROWS: Final = 4_096
_FIRST_ROWS: Final = 32
NOBODY: Final = -1
"""Owner of a vector whose row is superseded or gone, and the end of a row's vectors."""

Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Scanned:
    """Cosines of all vectors with a query, float32 [n], and the places of their rows, int32 [n]; -1 = of nobody."""

    cosines: Vector
    owners: NDArray[Any]


class VectorBlocks:
    """Unit vectors, float32 [n, dim], each with the place of the row that owns it."""

    def __init__(self, dim: int) -> None:
        self._dim = dim
        self._blocks: list[Vector] = []
        self._rows = GrowingColumns(owner=np.int32, chunk=np.uint16, next=np.int32)

    def __len__(self) -> int:
        return self._rows.length

    def append(self, owner: int, chunk: int, vector: Vector, before: int) -> int:
        """Adds a vector, made one of unit length, and returns its place; `before` is the last one of the same owner."""
        place = self._rows.length
        block, row = divmod(place, _BLOCK_ROWS)
        self._make_room(block, row)
        norm = float(np.linalg.norm(vector))
        self._blocks[block][row] = vector / norm if norm else vector
        return self._rows.append(owner=owner, chunk=chunk, next=before)

    def places(self, last: int) -> list[int]:
        """Returns the places of a row's vectors, from its last one on."""
        found = []
        while last != NOBODY:
            found.append(last)
            last = self._rows.get("next", last)
        return found

    def has_chunk(self, last: int, chunk: int) -> bool:
        """Says whether a row has a vector of this chunk."""
        return any(self._rows.get("chunk", place) == chunk for place in self.places(last))

    def disown(self, last: int) -> int:
        """Leaves a row's vectors to nobody and returns how many they are."""
        places = self.places(last)
        for place in places:
            self._rows.set("owner", place, NOBODY)
        return len(places)

    def begin_scan(self) -> Scanned:
        """Returns room for the cosines of all vectors that are there now; `scan_part` fills it."""
        owners = self._rows["owner"]
        return Scanned(np.empty(len(owners), np.float32), owners)

    def scan_part(self, scanned: Scanned, query: Vector, part: int, parts: int) -> None:
        """Compares the vectors of every `parts`-th block with a query of unit length, and releases the interpreter.

        A product row by row and not one of a matrix: that one's own threads wait for each other, and took five times
        as long where other work ran beside (measured, 100,000 vectors: 25 ms of processor time against 9).
        """
        count = len(scanned.owners)
        for number in range(part, -(-count // _BLOCK_ROWS), parts):
            first = number * _BLOCK_ROWS
            last = min(first + _BLOCK_ROWS, count)
            np.vecdot(self._blocks[number][: last - first], query, out=scanned.cosines[first:last])

    def scan(self, query: Vector) -> Scanned:
        """Compares every vector with a query of unit length."""
        scanned = self.begin_scan()
        self.scan_part(scanned, query, 0, 1)
        return scanned

    def cosine(self, place: int, query: Vector) -> float:
        """Compares one vector with a query of unit length."""
        block, row = divmod(place, _BLOCK_ROWS)
        return float(self._blocks[block][row] @ query)

    @property
    def size_bytes(self) -> int:
        """Memory that they take, spare room included."""
        return sum(block.nbytes for block in self._blocks) + self._rows.size_bytes

    def _make_room(self, block: int, row: int) -> None:
        if block == len(self._blocks):
            rows = _FIRST_ROWS if block == 0 else _BLOCK_ROWS
            self._blocks.append(np.empty((rows, self._dim), np.float32))
        held = self._blocks[block]
        if row == len(held):
            grown = np.empty((min(2 * row, _BLOCK_ROWS), self._dim), np.float32)
            grown[:row] = held
            self._blocks[block] = grown
