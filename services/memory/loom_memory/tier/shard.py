"""One namespace in memory: every row that is not deleted, whole, with its vectors and its terms.

A row never changes its place: a newer version of it is a new row, and the old one is dead. So a search that runs in a
thread reads what it began with, whatever is written meanwhile.
"""

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loom_memory.domain.memory import Identity
from loom_memory.domain.vectors import VectorSpace
from loom_memory.tier.columns import Codes, GrowingColumns
from loom_memory.tier.packing import PLACES, WIDTH, milliseconds, numbers_of, pack
from loom_memory.tier.postings import Postings, TailRow
from loom_memory.tier.vectors import NOBODY, VectorBlocks

# A row as bytes, its key and its places in dictionaries and lists. Source: measured with `tracemalloc`.
_ROW_BYTES: Final = 330
# An array of terms that waits to be joined.
_READ_BYTES: Final = 250
_LEAST_DEAD: Final = 1_000
_DEAD_SHARE: Final = 3
# Vectors that came before their row, which is stored last. Beyond it somebody writes and never ends.
_MOST_EARLY: Final = 20_000

Key = tuple[str, str, str]


class TooManyEarly(Exception):
    """More vectors wait for their rows than any write leaves: the namespace has to be read anew."""


class Shard:
    """The rows of one namespace and their vectors of one space.

    Attributes:
        total: Sum of the versions of all rows that are not deleted.
        newest: The highest version that was taken in, and `newest_vector` that of a vector.
        is_read: Whether what the database held is all there.
    """

    def __init__(self, space: VectorSpace) -> None:
        self.space = space
        self.columns = GrowingColumns(
            version=np.int64, user=np.int32, session=np.int32, thread=np.int32, agent=np.int32, kind=np.int32,
            tags=np.int32, speaker=np.int32, key=np.int64, at=np.int64, created=np.int64, updated=np.int64,
            expires=np.int64, dl=np.int32, is_alive=np.bool_, last_vector=np.int32,
        )  # fmt: skip
        self.packed: list[bytes | None] = []
        self._names: list[str] = []
        self.vectors = VectorBlocks(space.dim)
        self.postings = Postings()
        self.users, self.sessions, self.threads = Codes(), Codes(), Codes()
        self.agents, self.kinds, self.tags, self.speakers = Codes(), Codes(), Codes(), Codes()
        self.is_read = False
        self._places: dict[str, int] = {}
        self._gone: dict[str, int] = {}
        self._members: dict[int, array[int]] = {}
        self._early: OrderedDict[tuple[str, int], list[tuple[int, NDArray[np.float32]]]] = OrderedDict()
        self._read: list[tuple[int, NDArray[np.uint32]]] = []
        self._read_bytes = 0
        self._packed_bytes = 0
        self._dead = 0
        self.total = 0
        self.newest = 0
        self.newest_vector = 0

    def put(self, row: Sequence[Any], terms: NDArray[np.uint32], dl: int) -> None:
        """Takes a row of `memory` in; an older version than the one that is held changes nothing.

        Args:
            row: The values of the shared columns.
            terms: The term ids, with their repetitions.
            dl: The length in terms.
        """
        name = _name(row[2], row[3], row[4])
        version = row[PLACES["version"]]
        held = self._places.get(name)
        self.newest = max(self.newest, version)
        if version <= self._gone.get(name, 0) or (held is not None and version <= self.columns.get("version", held)):
            return
        if held is not None:
            self._kill(held, name)
        if row[PLACES["tombstoned_at"]] is not None:
            self._gone[name] = version
            self._early.pop((name, version), None)
            return
        self._gone.pop(name, None)
        place = self._append(row, name, dl, version)
        self._places[name] = place
        self.total += version
        if self.is_read:
            self.postings.append(TailRow.of(place, terms))
        else:
            self._read.append((place, terms))
            self._read_bytes += _READ_BYTES + terms.nbytes
        for chunk, vector in self._early.pop((name, version), ()):
            self._own(place, chunk, vector)

    def put_vector(self, identity: Identity, version: int, chunk: int, vector: NDArray[np.float32]) -> bool:
        """Takes a vector in and says whether it is of a version that is shown or may still come.

        Raises:
            TooManyEarly: Too many wait for rows that do not come.
        """
        name = _name(*identity)
        held = self._places.get(name)
        self.newest_vector = max(self.newest_vector, version)
        current = self.columns.get("version", held) if held is not None else self._gone.get(name, 0)
        if version < current or (held is None and version == current):
            return False
        if held is not None and version == current:
            if not self.vectors.has_chunk(self.columns.get("last_vector", held), chunk):
                self._own(held, chunk, vector)
            return True
        early = self._early.setdefault((name, version), [])
        if all(chunk != other for other, _ in early):
            early.append((chunk, vector))
        if len(self._early) > _MOST_EARLY:
            raise TooManyEarly
        return True

    def read_ended(self) -> None:
        """Joins the terms of what was read; from here on rows come one by one."""
        self.postings.take_in([place for place, _ in self._read], [terms for _, terms in self._read])
        self._read = []
        self._read_bytes = 0
        self.is_read = True

    def forget_early(self, before: int) -> None:
        """Drops vectors of versions below `before` whose rows never came."""
        for key in [key for key in self._early if key[1] < before]:
            del self._early[key]

    def version(self, identity: Identity) -> int:
        """Returns the newest version that is known of a memory, of its deletion too; 0 for none."""
        name = _name(*identity)
        held = self._places.get(name)
        return self.columns.get("version", held) if held is not None else self._gone.get(name, 0)

    def is_gone(self, identity: Identity) -> bool:
        """Says whether a memory was deleted and not written since."""
        return _name(*identity) in self._gone

    def places(self, identities: Iterable[Identity]) -> list[tuple[Identity, int]]:
        """Returns those of `identities` that are not deleted, with their places."""
        found = [(identity, self._places.get(_name(*identity))) for identity in identities]
        return [(identity, place) for identity, place in found if place is not None]

    def identity(self, place: int) -> Identity:
        """Returns whose row stands at a place."""
        return Identity(*self._names[place].split("\0"))

    def members(self, thread: int) -> NDArray[np.int32]:
        """Returns the places of one session of one user, dead ones included."""
        found = self._members.get(thread)
        return np.zeros(0, np.int32) if found is None else np.array(found, np.int32)

    @property
    def alive(self) -> int:
        """Rows that are not deleted."""
        return len(self._places)

    @property
    def has_all_vectors(self) -> bool:
        """Whether every row has vectors."""
        columns = self.columns
        return not bool(np.any(columns["is_alive"] & (columns["last_vector"] == NOBODY)))

    @property
    def is_worn(self) -> bool:
        """Whether so many rows are dead that it should be read anew."""
        return self._dead > max(_LEAST_DEAD, len(self._places) // _DEAD_SHARE)

    @property
    def size_bytes(self) -> int:
        """Memory that it takes, about."""
        early = sum(len(held) for held in self._early.values()) * (self.space.dim * 4 + 400)
        codes = sum(
            each.size_bytes
            for each in (
                self.users, self.sessions, self.threads, self.agents, self.kinds, self.tags, self.speakers,
            )
        )  # fmt: skip
        return (
            self.columns.size_bytes
            + self.vectors.size_bytes
            + self.postings.size_bytes
            + self._packed_bytes
            + 160 * len(self._gone)
            + early
            + codes
            + self._read_bytes
        )

    def _append(self, row: Sequence[Any], name: str, dl: int, version: int) -> int:
        user, session = row[3], row[4]
        user_code, session_code = self.users.of(user), self.sessions.of(session)
        thread = self.threads.of((user_code, session_code)) if session else NOBODY
        created = milliseconds(row[PLACES["created_at"]])
        event = row[PLACES["event_time"]]
        place = self.columns.append(
            version=version,
            user=user_code,
            session=session_code,
            thread=thread,
            agent=self.agents.of(row[PLACES["agent"]]),
            kind=self.kinds.of(row[PLACES["kind"]]),
            tags=self.tags.of(tuple(row[PLACES["tags"]])),
            speaker=self.speakers.of(row[PLACES["speaker"]]),
            key=key_number(row[2]),
            at=created if event is None else milliseconds(event),
            created=created,
            updated=milliseconds(row[PLACES["updated_at"]]),
            expires=milliseconds(row[PLACES["expires_at"]]),
            dl=dl,
            is_alive=True,
            last_vector=NOBODY,
        )
        packed = pack(row)
        # Behind the columns: a reader that found the place in them waits for nothing.
        self._names.append(name)
        self.packed.append(packed)
        self._packed_bytes += len(packed) + _ROW_BYTES + len(row[2]) + len(user) + len(session)
        if thread != NOBODY:
            if thread not in self._members:
                self._members[thread] = array("i")
            self._members[thread].append(place)
        return place

    def _own(self, place: int, chunk: int, vector: NDArray[np.float32]) -> None:
        last = self.columns.get("last_vector", place)
        self.columns.set("last_vector", place, self.vectors.append(place, chunk, vector, last))

    def _kill(self, place: int, name: str) -> None:
        del self._places[name]
        self.total -= self.columns.get("version", place)
        self.columns.set("is_alive", place, value=False)
        self._dead += 1 + self.vectors.disown(self.columns.get("last_vector", place))
        packed = self.packed[place]
        if packed is not None:
            self._packed_bytes -= len(packed)
        self.packed[place] = None


def fill_rows(shard: Shard, rows: Iterable[Sequence[Any]]) -> None:
    """Takes rows in as `TierRows` reads them."""
    for row in rows:
        shard.put(row[:WIDTH], numbers_of(row[WIDTH], np.uint32), row[WIDTH + 1])


def fill_vectors(shard: Shard, rows: Iterable[Sequence[Any]]) -> None:
    """Takes vectors in as `TierRows` reads them."""
    for row in rows:
        shard.put_vector(Identity(*row[:3]), row[3], row[4], numbers_of(row[5], np.float32))


def key_number(key: str) -> int:
    """Returns a number by which rows of one key are looked for; rows of another may have it too."""
    return hash(key)


def _name(key: str, user_id: str, session_id: str) -> str:
    """Returns an identity as one string: the garbage collector looks at tuples and not at strings."""
    return f"{key}\0{user_id}\0{session_id}"
