"""A row of `memory` in as few bytes as it has, and as much of it as a read asks for."""

import base64
import pickle
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loom_memory.domain.memory import Identity, Memory, Sketch
from loom_memory.domain.ranking import EXCERPT_CHARS
from loom_memory.store.columns import COLUMNS, memory_from_row

WIDTH: Final = len(COLUMNS)
"""Values of a row that are packed; the terms and the length come behind them."""

PLACES: Final = {column.name: place for place, column in enumerate(COLUMNS)}
NO_TIME: Final = 2**63 - 1
"""Stands for the time of what never happens; above every other."""

_TIMES: Final = tuple(place for place, column in enumerate(COLUMNS) if "DateTime64" in column.type)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
# The fields of a sketch that are columns of the same name.
_SKETCHED: Final = tuple(PLACES[name] for name in Sketch._fields[6:])

KEY, USER, SESSION = PLACES["memory_key"], PLACES["user_id"], PLACES["session_id"]
_VALUE, _SPEAKER, _VERSION = PLACES["value"], PLACES["speaker"], PLACES["version"]
_EVENT, _CREATED = PLACES["event_time"], PLACES["created_at"]


def milliseconds(moment: datetime | None) -> int:
    """Returns a time as a number, `NO_TIME` for None. Units: milliseconds since 1970, UTC."""
    return NO_TIME if moment is None else (moment - _EPOCH) // _MILLISECOND


def pack(row: Sequence[Any]) -> bytes:  # Any: a row's types are the columns'
    """Returns the first `WIDTH` values of a row as bytes.

    Bytes are nothing that the garbage collector has to look at: a hundred thousand rows as objects would stop the
    process for tens of milliseconds at a time.
    """
    values = list(row[:WIDTH])
    for place in _TIMES:
        if values[place] is not None:
            values[place] = (values[place] - _EPOCH) // _MILLISECOND
    return pickle.dumps(values, pickle.HIGHEST_PROTOCOL)


def _unpack(packed: bytes) -> list[Any]:
    values: list[Any] = pickle.loads(packed)  # noqa: S301  (bytes that `pack` made in this process)
    return values


def memory_of(packed: bytes) -> Memory:
    """Returns the memory of a packed row."""
    values = _unpack(packed)
    for place in _TIMES:
        values[place] = _time(values[place])
    return memory_from_row(values)


def sketch_of(packed: bytes) -> Sketch:
    """Returns what ranking needs of a packed row."""
    values = _unpack(packed)
    value = values[_VALUE]
    at = values[_EVENT] if values[_EVENT] is not None else values[_CREATED]
    return Sketch._make(
        (
            Identity(values[KEY], values[USER], values[SESSION]),
            values[_VERSION],
            values[_SPEAKER],
            _EPOCH + at * _MILLISECOND,
            len(value),
            value[:EXCERPT_CHARS],
            *(_time(values[place]) if place in _TIMES else values[place] for place in _SKETCHED),
        )
    )


def _time(found: int | None) -> datetime | None:
    return None if found is None else _EPOCH + found * _MILLISECOND


def numbers_of(packed: str, kind: type[np.generic]) -> NDArray[Any]:
    """Returns the numbers that the database packed: a count of one byte or more, then each as it lies in memory."""
    data = base64.b64decode(packed)
    start = 0
    while data[start] & 0x80:
        start += 1
    return np.frombuffer(data, kind, offset=start + 1)
