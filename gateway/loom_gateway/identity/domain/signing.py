"""Which key signs, and which ones verify."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import Final, Protocol, TypeVar

TAKES_OVER_AFTER: Final = timedelta(seconds=60)
"""How long a new key is known before it signs. Source: replicas read keys every ten seconds and services hear of them
at once after that; one that was cut off for thirty refuses callers anyway."""

VERIFIES_FOR: Final = timedelta(days=366)
"""How long a key verifies after it signed last. Source: the longest life of a token, 365 days, and one for clocks that
differ."""


class Dated(Protocol):
    """What has a time at which it was made."""

    @property
    def created_at(self) -> datetime:
        """When it was made, UTC."""
        ...


K = TypeVar("K", bound=Dated)


def signing_key(keys: Sequence[K], now: datetime) -> K | None:
    """Returns the key that signs: the newest that everybody knows, else the oldest there is.

    Args:
        keys: Keys, the oldest first.
        now: The moment.
    """
    known = [key for key in keys if key.created_at + TAKES_OVER_AFTER <= now]
    return known[-1] if known else next(iter(keys), None)


def verifying_keys(keys: Sequence[K], now: datetime) -> list[K]:
    """Returns the keys that may have signed a token that has not expired, in their order.

    Args:
        keys: Keys, the oldest first.
        now: The moment.
    """
    return [
        key
        for key, next_one in zip_longest(keys, keys[1:])
        if next_one is None or now < next_one.created_at + TAKES_OVER_AFTER + VERIFIES_FOR
    ]
