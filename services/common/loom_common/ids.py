"""Identifiers that sort by the time they were made: 26 characters of Crockford's base 32, as a ULID."""

import secrets
import threading
from collections.abc import Callable

from loom_common.clock import Clock, SystemClock

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
# Two at a time: identifiers are made for every call.
_PAIRS = tuple(first + second for first in _ALPHABET for second in _ALPHABET)
_SHIFTS = tuple(10 * place for place in reversed(range(13)))
_RANDOM_BITS = 80
_MAX_RANDOM = (1 << _RANDOM_BITS) - 1

IdSource = Callable[[], str]
"""Makes the next identifier; code whose result depends on identifiers takes one."""


class SortableIds:
    """Draws identifiers of 48 bits of milliseconds and 80 random bits; rising within one process."""

    def __init__(self, clock: Clock, random_bits: Callable[[int], int] = secrets.randbits) -> None:
        self._clock = clock
        self._random_bits = random_bits
        self._lock = threading.Lock()
        self._last_ms = -1
        self._last_random = 0

    def __call__(self) -> str:
        """Returns a new identifier, above every earlier one of this source."""
        with self._lock:
            now_ms = self._clock.now_ns() // 1_000_000
            if now_ms > self._last_ms:
                self._last_ms = now_ms
                self._last_random = self._random_bits(_RANDOM_BITS)
            elif self._last_random < _MAX_RANDOM:
                # Same millisecond, or a clock that was set back: count on, so that the order holds.
                self._last_random += 1
            else:
                self._last_ms += 1
                self._last_random = self._random_bits(_RANDOM_BITS)
            return encode((self._last_ms << _RANDOM_BITS) | self._last_random)


def encode(number: int) -> str:
    """Returns 128 bits as 26 characters that sort as the number does."""
    return "".join([_PAIRS[(number >> shift) & 1023] for shift in _SHIFTS])


new_id: IdSource = SortableIds(SystemClock())
"""The process's own source, for identifiers that no result depends on."""
