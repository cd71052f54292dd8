"""Which rows hold a term and how often: sorted arrays of what was there at the last merge, and a tail of what came."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Terms = NDArray[np.uint32]
Counts = NDArray[Any]
Places = NDArray[np.int32]

# Source: chosen. A merge of a small namespace takes under a millisecond; of a large one it is rare.
_LEAST_TAIL: Final = 512
_TAIL_SHARE: Final = 8
# Bytes of one posting of the tail: two numbers in lists, their objects, the arrays that a merge reads.
_TAIL_POSTING_BYTES: Final = 60
_TAIL_TERM_BYTES: Final = 320
_TAIL_ROW_BYTES: Final = 300


@dataclass(frozen=True, slots=True)
class Merged:
    """Postings by term: those of `terms[i]` lie between `starts[i]` and `starts[i + 1]`, in order of place."""

    terms: Terms
    starts: NDArray[Any]
    places: Places
    counts: NDArray[np.uint16]

    @property
    def size_bytes(self) -> int:
        """Memory that the arrays take."""
        return self.terms.nbytes + self.starts.nbytes + self.places.nbytes + self.counts.nbytes

    def of(self, term: int) -> tuple[Places, NDArray[np.uint16]]:
        """Returns the places that hold a term, and how often."""
        at = int(np.searchsorted(self.terms, np.uint32(term)))
        if at == len(self.terms) or self.terms[at] != term:
            return self.places[:0], self.counts[:0]
        first, last = int(self.starts[at]), int(self.starts[at + 1])
        return self.places[first:last], self.counts[first:last]

    def with_rows(self, rows: Sequence["TailRow"]) -> "Merged":
        """Returns these postings and those of more rows."""
        terms = np.concatenate([np.repeat(self.terms, np.diff(self.starts)), *(row.terms for row in rows)])
        places = np.concatenate(
            [self.places, *(np.full(len(row.terms), row.place, np.int32) for row in rows)], dtype=np.int32
        )
        counts = np.concatenate([self.counts, *(row.counts for row in rows)], dtype=np.uint16)
        # Stable, so that the two runs that are sorted already cost one pass.
        order = np.argsort(_keys(terms, places), kind="stable")
        return _sorted(terms[order], places[order], counts[order])

    @classmethod
    def counted(cls, places: Sequence[int], term_ids: Sequence[Terms]) -> "Merged":
        """Returns the postings of rows whose terms are given with their repetitions."""
        if not places:
            return EMPTY
        owners = np.repeat(np.array(places, np.int32), [len(each) for each in term_ids])
        keys = _keys(np.concatenate(term_ids), owners)
        keys.sort()
        firsts = _firsts(keys)
        counts = np.minimum(np.diff(firsts, append=len(keys)), 65_535).astype(np.uint16)
        keys = keys[firsts]
        return _sorted((keys >> _HIGH).astype(np.uint32), (keys & _LOW).astype(np.int32), counts)


_HIGH: Final = np.uint64(32)
_LOW: Final = np.uint64(2**32 - 1)


def _keys(terms: Terms, places: Places) -> NDArray[np.uint64]:
    """Returns one number for each posting, in whose order they lie."""
    keys: NDArray[np.uint64] = (terms.astype(np.uint64) << _HIGH) | places.astype(np.uint64)
    return keys


def _firsts(values: NDArray[Any]) -> NDArray[Any]:
    """Returns where a value begins in sorted ones."""
    if not len(values):
        return np.zeros(0, np.int64)
    return np.concatenate([[0], np.flatnonzero(values[1:] != values[:-1]) + 1])


def _sorted(terms: Terms, places: Places, counts: NDArray[np.uint16]) -> Merged:
    firsts = _firsts(terms)
    return Merged(terms[firsts], np.append(firsts, len(terms)).astype(np.int64), places, counts)


EMPTY: Final = Merged(np.zeros(0, np.uint32), np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.uint16))


@dataclass(frozen=True, slots=True)
class TailRow:
    """The distinct terms of one row that is not merged yet, and how often it holds each."""

    place: int
    terms: Terms
    counts: NDArray[np.uint16]

    @classmethod
    def of(cls, place: int, term_ids: Terms) -> "TailRow":
        """Counts the terms of a row, which are given with their repetitions."""
        terms, counts = np.unique(term_ids, return_counts=True)
        return cls(place, terms, counts.astype(np.uint16))


class Postings:
    """The terms of a namespace's rows."""

    def __init__(self) -> None:
        self._merged = EMPTY
        self._tail: list[TailRow] = []
        self._by_term: dict[int, tuple[list[int], list[int]]] = {}
        self._tail_bytes = 0

    def append(self, row: TailRow) -> None:
        """Adds a row, whose place is above all before it."""
        self._tail.append(row)
        self._enter(row)

    def take_in(self, places: Sequence[int], term_ids: Sequence[Terms]) -> None:
        """Begins with many rows at once; `term_ids` with their repetitions."""
        self._merged = Merged.counted(places, term_ids)

    def of(self, term: int) -> tuple[Places, NDArray[np.uint16]]:
        """Returns the places that hold a term, in order, and how often."""
        places, counts = self._merged.of(term)
        late = self._by_term.get(term)
        if late is None:
            return places, counts
        return (
            np.concatenate([places, np.array(late[0], np.int32)]),
            np.concatenate([counts, np.array(late[1], np.uint16)]),
        )

    @property
    def wants_merge(self) -> bool:
        """Whether the tail is so long that searches feel it."""
        merged_rows = int(self._merged.places[-1]) if len(self._merged.places) else 0
        return len(self._tail) > max(_LEAST_TAIL, merged_rows // _TAIL_SHARE)

    def merge_begun(self) -> tuple[Merged, list[TailRow]]:
        """Returns what `merge_ended` puts in place once `Merged.with_rows` has joined it, in whatever thread."""
        return self._merged, list(self._tail)

    def merge_ended(self, merged: Merged, rows: int) -> None:
        """Puts a merge of the first `rows` of the tail in place; what came meanwhile is the tail now."""
        self._merged = merged
        self._start_tail(self._tail[rows:])

    @property
    def size_bytes(self) -> int:
        """Memory that they take."""
        return self._merged.size_bytes + self._tail_bytes

    def _start_tail(self, rows: list[TailRow]) -> None:
        self._tail, self._by_term, self._tail_bytes = rows, {}, 0
        for row in rows:
            self._enter(row)

    def _enter(self, row: TailRow) -> None:
        self._tail_bytes += _TAIL_ROW_BYTES + _TAIL_POSTING_BYTES * len(row.terms)
        for term, count in zip(row.terms.tolist(), row.counts.tolist(), strict=True):
            held = self._by_term.get(term)
            if held is None:
                held = self._by_term[term] = ([], [])
                self._tail_bytes += _TAIL_TERM_BYTES
            # The count first: who reads meanwhile takes as many counts as there are places, or more.
            held[1].append(count)
            held[0].append(row.place)
